/**
 * An event as it leaves: CloudEvents 1.0, structured JSON (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md). The
 * payload goes in as stored, so that its numbers stay exact, and the text is the same at every attempt.
 */
import type { Message } from "../broker/broker.js"
import type { Leased } from "./deliveries.js"

/** Digits of the largest bigint: sequences compare as text. */
const sequenceDigits = 19

/** @param source who announces: a URI */
export function messageOf(event: Leased, source: string): Message {
  const attributes = JSON.stringify({
    specversion: "1.0",
    id: event.id,
    source,
    type: event.type,
    subject: event.aggregateid,
    time: event.at,
    datacontenttype: "application/json",
    // https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/sequence.md: rises within a subject.
    sequence: event.seq.padStart(sequenceDigits, "0"),
  })
  const body = `${attributes.slice(0, -1)},"data":${event.payload}}`
  return { id: event.id, type: event.type, subject: event.aggregateid, body }
}
