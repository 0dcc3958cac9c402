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

/**
 * An amount as decimal text, with as many decimals as the currency has: 500 is `5.00` in USD, `500` in JPY, `0.500` in KWD. Exact for any size.
 * @param cents integer in minor units
 * @returns null for a currency that is not known (any more)
 */
export function decimalText(cents: number | bigint, currency: string): string | null {
  const digits = minorUnits(currency)
  if (digits === undefined) return null
  const text = String(cents)
  if (digits === 0) return text
  const sign = text.startsWith("-") ? "-" : ""
  const padded = text.slice(sign.length).padStart(digits + 1, "0")
  return `${sign}${padded.slice(0, -digits)}.${padded.slice(-digits)}`
}
