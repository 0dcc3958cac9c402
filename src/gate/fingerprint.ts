/**
 * Fingerprints: is this retry the same request? What was asked, in one canonical spelling (RFC 8785), hashed under a version that is stored
 * with it. Nothing that the server adds is part of it, so a retry at any later time has the same fingerprint. A version, once released,
 * is never changed or removed: an upgrade must not turn an honest retry into a conflict.
 */
import { hash } from "node:crypto"
import canonicalize from "canonicalize"
import { limits } from "../limits.js"

/** Every version that was ever stored. The last one is what new claims get. */
const versions: Readonly<Record<string, (canonical: string) => string>> = {
  v1: (canonical) => hash("sha256", canonical, "hex"),
}
const newest = "v1"

/**
 * The RFC 8785 text of one request: operation, path parameters and normalised body.
 * @param canonicalBody an RFC 8785 text itself; `null` for an operation without a body
 */
export function canonicalRequest(
  operation: string,
  params: Readonly<Record<string, string>>,
  canonicalBody: string,
): string {
  return `{"body":${canonicalBody},"operation":${JSON.stringify(operation)},"params":${canonicalize(params)}}`
}

/** `v1:` and the SHA-256 of the canonical text, in hex. */
export function fingerprint(canonical: string): string {
  return `${newest}:${versions[newest]?.(canonical)}`
}

/**
 * Whether a stored fingerprint, of whatever version, is that of this request.
 * @throws Error if the version is not known: better no answer than a conflict that is none
 */
export function sameRequest(storedFingerprint: string, canonical: string): boolean {
  const version = storedFingerprint.slice(0, storedFingerprint.indexOf(":"))
  const digest = Object.hasOwn(versions, version) ? versions[version] : undefined
  if (!digest) throw new Error("a stored fingerprint has a version that this version of grantgate does not know")
  return storedFingerprint === `${version}:${digest(canonical)}`
}

/**
 * Where two JSON values differ: pointers (RFC 6901) to the outermost members that are not the same, in order of their names, at most
 * `limits.pointersMax`. `""` when the values cannot be compared member by member. No values, only places.
 */
export function differences(a: unknown, b: unknown): string[] {
  const found: string[] = []
  compare(a, b, "", found)
  return found
}

function compare(a: unknown, b: unknown, pointer: string, found: string[]): void {
  if (a === b || found.length >= limits.pointersMax) return
  if (!isTree(a) || !isTree(b) || Array.isArray(a) !== Array.isArray(b)) {
    found.push(pointer)
    return
  }
  for (const name of namesOf(a, b)) {
    const inner = `${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`
    if (Object.hasOwn(a, name) && Object.hasOwn(b, name)) compare(a[name], b[name], inner, found)
    else if (found.length < limits.pointersMax) found.push(inner)
  }
}

function namesOf(a: Tree, b: Tree): string[] {
  const names = new Set([...Object.keys(a), ...Object.keys(b)])
  return Array.isArray(a) ? [...names] : [...names].sort()
}

type Tree = Record<string, unknown>

function isTree(value: unknown): value is Tree {
  return typeof value === "object" && value !== null
}
