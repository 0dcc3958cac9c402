/**
 * Currencies: the active codes of ISO 4217 that name money, with the digits of their minor unit, after List One of the maintenance agency
 * (SIX, https://www.six-group.com/en/products-services/financial-information/data-standards.html) as of January 2026: with XCG for ANG, ZWG
 * for ZWL, SLE for SLL, and without BGN, HRK and CUC. Codes without a minor unit (metals, XDR, XSU, XUA, XTS, XXX) are left out: they
 * cannot be counted in cents. Fixed here, not asked of the runtime, whose list and digits differ from version to version.
 */

const codesByMinorUnits: Readonly<Record<0 | 2 | 3 | 4, string>> = {
  0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
  2: `AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK
    DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR
    LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR
    SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER
    ZAR ZMW ZWG`,
  3: "BHD IQD JOD KWD LYD OMR TND",
  4: "CLF UYW",
}

const minorUnitsByCode: ReadonlyMap<string, number> = new Map(
  Object.entries(codesByMinorUnits).flatMap(([digits, codes]) =>
    codes.split(/\s+/).map((code) => [code, Number(digits)] as const),
  ),
)

/** Whether this version knows the code. The list changes, so this is asked only of new requests, never of a replay. */
export function isKnownCurrency(code: string): boolean {
  return minorUnitsByCode.has(code)
}

/** How many decimals the currency's minor unit stands for: 2 for USD, 0 for JPY, 3 for KWD; undefined for a code that is not known. */
export function minorUnits(code: string): number | undefined {
  return minorUnitsByCode.get(code)
}
