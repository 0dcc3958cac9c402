/**
 * Cuts a stream of bytes into lines, as they come. Holds one unfinished line at most, and never more of it than a line may have: the rest of a
 * longer one is counted past and dropped, whether it has a megabyte more or a terabyte. The end of a line is LF; a CR before it stays, and is
 * white space to JSON.
 */
export interface ByteLine {
  /** From 1; every line counts, blank and oversized ones too. */
  readonly line: number
  /** Without its LF; null: longer than a line may be. */
  readonly bytes: Buffer | null
}

const lf = 0x0a
const partsMax = 64

export class ByteLines {
  readonly #bytesMax: number
  #line = 1
  #parts: Buffer[] = []
  #length = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  /** The lines that end in this chunk. To be taken all before the next chunk; a line's bytes may be a view of the chunk. */
  *push(chunk: Buffer): Generator<ByteLine, void, undefined> {
    let from = 0
    for (let end = chunk.indexOf(lf); end !== -1; end = chunk.indexOf(lf, from)) {
      this.#add(chunk, from, end)
      from = end + 1
      yield this.#take()
    }
    if (from < chunk.length) this.#add(chunk, from, chunk.length)
  }

  /** The last line, where no LF ended it. */
  *end(): Generator<ByteLine, void, undefined> {
    if (this.#length > 0) yield this.#take()
  }

  #add(chunk: Buffer, from: number, to: number): void {
    this.#length += to - from
    if (this.#length > this.#bytesMax) this.#parts = []
    else if (to > from) this.#parts.push(chunk.subarray(from, to))
    // Who sends byte by byte would make a buffer of each.
    if (this.#parts.length === partsMax) this.#parts = [Buffer.concat(this.#parts)]
  }

  #take(): ByteLine {
    const [first = Buffer.alloc(0)] = this.#parts
    const whole = this.#parts.length > 1 ? Buffer.concat(this.#parts) : first
    const bytes = this.#length > this.#bytesMax ? null : whole
    this.#parts = []
    this.#length = 0
    return { line: this.#line++, bytes }
  }
}

/** Nothing but white space. */
export function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)
}
