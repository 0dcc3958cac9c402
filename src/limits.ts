/**
 * Every bound of the service, in one place: a name that ends in its unit, and the reason for the number.
 * How bounds relate is asserted at the end, so that a change which breaks another's assumption stops the process at start.
 */

export const limits = Object.freeze({
  // What a request may carry (CONTRACT: submissions, key)
  bodyBytesMax: 64 * 1024,
  jsonDepthMax: 32,
  awardIdCharsMax: 100,
  submissionIdCharsMax: 128,
  /** Names that systems give to accounts, to themselves and to their events; all three stand in one key or URL. */
  accountKeyCharsMax: 128,
  sourceCharsMax: 128,
  sourceEventIdCharsMax: 128,
  keyCharsMin: 1,
  keyCharsMax: 255,
  /** Largest integer that every JSON reader agrees on, 2^53 - 1: an amount is never a rounded one. */
  amountCentsMax: Number.MAX_SAFE_INTEGER,
  portalNameCharsMax: 100,
  bootstrapTokenCharsMin: 32,
  /** Why something was done, in words. */
  reasonCharsMax: 500,
  /** Days after an award's period; the field's longest are two years. */
  liquidationDaysMax: 3_650,
  /** 2 CFR 200.334: three years at least. */
  retentionYearsMin: 3,
  retentionYearsMax: 100,
  /** Portals that an award may name: they are read with it on the write path. */
  awardPortalsMax: 500,
  /** Random bytes of a token: 256 bits, beyond guessing. */
  tokenBytes: 32,
  /** A submission may be this far ahead of the database's clock: portals' clocks drift, awards' periods do not. */
  submissionAheadMs: 5 * 60 * 1000,
  /** Pointers listed in `differs` or `errors`; more than a person reads. */
  pointersMax: 50,

  // HTTP: the slow and the huge are cut off before they cost anything
  headerBytesMax: 16 * 1024,
  headersMs: 10_000,
  requestMs: 20_000,
  connectionMs: 60_000,
  keepAliveMs: 65_000,
  /** A percent-encoded key or award id: at most 12 bytes of `%XX` for each of 255 characters. */
  pathParamCharsMax: 255 * 12,
  pageItemsDefault: 50,
  pageItemsMax: 200,
  /** How long a token's owner is remembered; a token revoked on another process may work this much longer. */
  tokenCacheMs: 1_000,
  tokenCacheEntriesMax: 10_000,

  // Waiting (CONTRACT: every request is answered within 8 s of its arrival)
  answerMs: 8_000,
  /** A request leaves the gate with an answer by then, whatever the database does. */
  memberMs: 5_000,
  /** How long a request waits for a twin that is still running, or for an award that another holds. */
  heldMs: 2_000,
  /** Keys whose answers are remembered, to answer a retry at once; about 1 KiB each. */
  recentKeysMax: 20_000,
  /** How long after the database said so; a retry after that asks it again. */
  recentAnswerMs: 10_000,
  /** Look-ups of recorded keys that may run side by side, each for all who ask at that time. */
  lookUpsMax: 2,
  /** A held member tries again after this long at first, twice as long each time, up to the second figure. */
  heldRetryMsMin: 20,
  heldRetryMsMax: 200,
  /** How long an award found held is remembered when nobody waits for it: its next request locks it first. */
  heldMemoryMs: 10_000,
  /** One read (a page, a look-up, a token) with its connection. */
  readMs: 2_000,
  /** One change of an award's rules, with its connection and its wait of `heldMs` for the award. */
  rulesChangeMs: 3_000,
  /** Looking, before the gate, whose line is returned or reversed: as long as any read, but no less than this if the token took long. */
  originalMsMin: 900,
  /** A token's look-up that the database refused is tried again after this long. */
  readRetryMs: 100,
  /** A handler's time to say what to write, between claim and write; it awaits nothing. */
  decideMs: 50,
  retryAfterSeconds: 1,

  // One group's transaction
  groupMembersMax: 128,
  groupBytesMax: 2 * 1024 * 1024,
  /** One lane makes larger groups, and the one busy thread works less for each request; bench/README.md has the figures. */
  lanesDefault: 1,
  /** A late lock on an award's total that takes longer is a held award: roll back and lock awards first. */
  lockMs: 25,
  statementMs: 2_000,
  idleInTransactionMs: 2_000,
  /** The client's own limit for one attempt of a group, COMMIT included: a paused server keeps no timeouts. */
  groupAttemptMs: 3_000,
  connectMs: 2_000,
  reconnectMsMax: 500,
  /** Retries of a whole group after a deadlock or serialization failure; members' deadlines end it sooner. */
  groupRetriesMax: 10,

  // The queue before the gate
  queueMembersMax: 4_096,
  queueBytesMax: 64 * 1024 * 1024,

  // Reports: long reads have connections of their own, so that pages, look-ups and tokens never wait behind them
  reportConnectionsMax: 4,
  /** Exports that run side by side in a process; more are refused. Each costs the one thread of the process its share. */
  exportsMax: 8,
  /** Lines of the ledger that one page of possible duplicates looks at: some 100 ms. */
  duplicatesStretchLines: 2_000,
  duplicatesDaysDefault: 30,
  duplicatesDaysMax: 90,
  /** Lines of one statement of an export: some 10 ms for the database, and as much for writing them as CSV. */
  exportBatchLines: 1_000,
  /** Totals over a large ledger read all of its lines: stopped by the server after this long, and few at once. */
  totalsMs: 6_000,
  totalsMax: 2,
  /** Awards in one statement of an export of totals. */
  totalsBatchAwards: 1_000,
  /** Totals by currency or portal come all at once: portals are few, and currencies fewer. */
  totalsGroupsMax: 10_000,
  /** One such statement of an export, its wait for a connection included. */
  exportBatchMs: 5_000,

  // Batches
  /** Lines of one batch that are read and whose answers are not yet taken by the client: some groups' worth, so that one that waits stalls no lane. */
  batchLinesMax: 1_024,
  batchBytesMax: 4 * 1024 * 1024,
  /** Requests in bulk that are inside the gate, of all batches together. */
  bulkBytesMax: 16 * 1024 * 1024,
  /** A line that the gate has no room for tries again after this long, and up to the second figure. */
  bulkRetryMs: 50,
  bulkPatienceMs: 8_000,
  /** Time that a batch reads lines without letting others in. */
  batchTurnMs: 4,
  /** Answers to lines that are sent in one piece. */
  batchPieceCharsMax: 64 * 1024,
  /** After an early end what the client still sends is thrown away for this long, so that it can read the last line. */
  lingerMs: 1_000,
  // Files of awards
  /** A file is read whole before anything is done with it. */
  importBytesMax: 64 * 1024 * 1024,
  /** Awards written by one statement of an import. */
  importRowsMax: 1_000,
  /** One transaction with all changes of a file: a hundred thousand awards take some ten seconds on two cores. */
  importMs: 10 * 60 * 1000,
  importStatementMs: 60_000,
  /** Faults of a file that are told one by one. */
  importFaultsMax: 100,

  // `grantgate submit`, a client: what it has sent and holds until the answer comes, so that it can send it again
  submitLinesMax: 8_192,
  submitBytesMax: 16 * 1024 * 1024,
  submitPieceChars: 16 * 1024,
  /** A line whose answer says "the same again" is sent so often; what else failed is tried as long as the command has patience. */
  submitTriesMax: 5,
  submitRetryMsMin: 250,
  submitRetryMsMax: 10_000,
  /** Longer than a service takes to end a batch in which nothing moves. */
  submitAnswerMs: 75_000,
  submitPatienceSeconds: 600,
  /** Exceptions shown where no file is to keep them; more than a person reads at a terminal. */
  submitShownMax: 20,

  // Reconciliation: a list is held in memory while it is compared, some 300 bytes a line
  listingLinesMax: 200_000,
  listingBytesMax: 64 * 1024 * 1024,
  /** Lists that are compared side by side in a process; more are refused. */
  reconciliationsMax: 2,
  /** Lines of the list, or of the ledger, in one statement: some 20 ms. */
  reconciliationBatchLines: 2_000,
  /** Exceptions, and awards, that an answer in JSON holds: more than a person reads. Exports hold all. */
  reconciliationItemsMax: 1_000,

  // The process
  /**
   * How far the heap grows beyond what is alive before it is swept. V8 alone lets it grow fourfold under a million lines, 320 MB resident where this
   * takes 210 MB, for 5 % of CPU.
   */
  heapGrowthPercent: 100,
  // Announcing: leases and destinations
  /** A lost lease is taken over after this long; outlasts one message's time with room to spare. */
  leaseMs: 30_000,
  /** One message, from its start to the other side's word. */
  publishMs: 10_000,
  /** Events of one destination that a relay has leased; more would wait behind what they were leased to overtake. */
  leasedMax: 512,
  /** Of one award in one lease: they go one by one, and others are not to wait for them. */
  leasedPerAwardMax: 64,
  /** First rows of a destination that a lease looks at, and how far it looks when those are all held back. */
  windowRowsMin: 1_024,
  windowRowsMax: 16_384,
  /** Leases lost in a row after which an event is leased alone, and after which it is parked. */
  leasesLostInCompanyMax: 2,
  leasesLostMax: 3,
  /** Holds that are tried again side by side. */
  holdsLeasedMax: 16,
  /** Look for new events this often when there were none. */
  relayIdleMs: 200,
  /** Paused, resumed, added and removed destinations are noticed within this time. */
  destinationsReadMs: 1_000,
  relayConnectionsMax: 4,
  /** One statement of the relay, its wait for a connection included. */
  relayStatementMs: 5_000,
  /** Attempts before an event is parked: refused by the receiver, or failed while others are delivered. */
  refusedAttemptsMax: 3,
  failedAttemptsMax: 10,
  /** Between attempts, doubled each time, with jitter. */
  retryMsMin: 500,
  retryMsMax: 60_000,
  /** A destination that is down is tried again after this long at first, doubled each time, with jitter. */
  breakerMsMin: 250,
  breakerMsMax: 30_000,
  /** For a receiver that asks to wait without saying how long, and the longest that is waited. */
  throttleMsDefault: 5_000,
  throttleMsMax: 5 * 60_000,
  /** A relay whose last turn is older than this is not ready; longer than any one turn. */
  turnAgeMsMax: 15_000,
  /** At a stop, what is on its way to a destination may go on until then. */
  relayFinishMs: 5_000,
  destinationNameCharsMax: 60,
  /** Adding or removing a destination waits for the writers under way, and they for it. */
  destinationLockMs: 2_000,
  webhookConnectionsMax: 16,
  webhookConnectMs: 3_000,
  webhookKeepAliveMs: 4_000,
  /** Of an answer, read to keep the connection; its status is the word. */
  webhookAnswerBytesMax: 16 * 1024,
  /** Standard Webhooks: 24 to 64 bytes. */
  webhookSecretBytesMin: 24,
  webhookSecretBytesMax: 64,
  brokerConnectMs: 3_000,

  // Connections and stopping
  readConnectionsMax: 5,
  /** Operators' changes, which may wait for an award: apart, so that they keep no read waiting. */
  changeConnectionsMax: 2,
  /** SIGTERM to exit. */
  stopMs: 9_000,
} as const)

/** Stops the process with the name of the relation that does not hold. */
function relate(holds: boolean, relation: string): void {
  if (!holds) throw new Error(`limits: ${relation} must hold`)
}

relate(
  limits.readMs + limits.originalMsMin + limits.memberMs < limits.answerMs,
  "readMs + originalMsMin + memberMs < answerMs (the token, the line to undo, then the gate)",
)
relate(limits.heldMs < limits.memberMs, "heldMs < memberMs")
relate(
  2 * limits.readMs + limits.rulesChangeMs < limits.answerMs,
  "2 readMs + rulesChangeMs < answerMs (the token, the portals named, then the change)",
)
relate(limits.heldMs < limits.rulesChangeMs, "heldMs < rulesChangeMs (a change outlasts its wait)")
relate(limits.groupAttemptMs > limits.statementMs, "groupAttemptMs > statementMs (the server's own limit comes first)")
relate(limits.groupAttemptMs < limits.memberMs, "groupAttemptMs < memberMs (a second attempt fits)")
relate(limits.lockMs < limits.statementMs, "lockMs < statementMs")
relate(limits.decideMs < limits.idleInTransactionMs, "decideMs < idleInTransactionMs")
relate(limits.groupBytesMax >= limits.bodyBytesMax, "groupBytesMax >= bodyBytesMax (any one request fits a group)")
relate(limits.bulkBytesMax < limits.queueBytesMax, "bulkBytesMax < queueBytesMax (single requests find the door open)")
relate(limits.submitAnswerMs > limits.connectionMs, "submitAnswerMs > connectionMs (the service says why first)")
relate(limits.batchBytesMax >= 2 * limits.bodyBytesMax, "batchBytesMax >= 2 * bodyBytesMax (any line fits)")
relate(
  limits.memberMs + limits.lingerMs < limits.stopMs - 2_000,
  "memberMs + lingerMs < stopMs - 2 s (a batch ends inside a stop)",
)
relate(limits.totalsMs + limits.connectMs <= limits.answerMs, "totalsMs + connectMs <= answerMs")
relate(limits.totalsMax < limits.reportConnectionsMax, "totalsMax < reportConnectionsMax (exports go on beside totals)")
relate(limits.memberMs + 1_000 < limits.stopMs, "memberMs + 1 s < stopMs (what is in flight ends inside a stop)")
relate(limits.leaseMs >= 2 * limits.publishMs, "leaseMs >= 2 publishMs (what is sent is settled under its lease)")
relate(limits.leasedPerAwardMax < limits.leasedMax, "leasedPerAwardMax < leasedMax (no award fills a lease)")
relate(
  limits.leasesLostInCompanyMax < limits.leasesLostMax,
  "leasesLostInCompanyMax < leasesLostMax (alone before parked)",
)
relate(limits.relayIdleMs <= 250, "relayIdleMs <= 250 (an event waits no longer for being noticed)")
relate(
  limits.relayFinishMs + 2_000 < limits.stopMs,
  "relayFinishMs + 2 s < stopMs (leases are given back inside a stop)",
)
