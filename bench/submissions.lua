-- Makes submissions for wrk: each thread counts its own, and key and body follow from (seed, thread, count) alone, so that a second run with
-- the same seed sends the same requests again. Answers are not looked at here, which would cost more than sending: the run counts rows.
-- Arguments: token, seed, number of awards, how many requests to send before beginning again (0: never), and which to begin with.
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  token = args[1]
  seed = tonumber(args[2])
  awards = tonumber(args[3])
  cycle = tonumber(args[4])
  count = tonumber(args[5])
  headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
end

function request()
  local at = count
  if cycle > 0 then at = count % cycle end
  count = count + 1
  math.randomseed(seed * 1e10 + number * 1e8 + at)
  local r = math.random
  headers["Idempotency-Key"] = string.format(
    "%04x%04x-%04x-4%03x-8%03x-%04x%04x%04x",
    r(0, 65535), r(0, 65535), r(0, 65535), r(0, 4095), r(0, 4095), r(0, 65535), r(0, 65535), r(0, 65535)
  )
  local body = string.format(
    '{"award_id":"A-2025-%04d","submission_timestamp":"2025-07-01T09:00:00Z","amount_cents":%d,"currency":"USD","invoice_ref":"INV-%06d"}',
    r(1, awards), r(1, 1000000), at
  )
  return wrk.format("POST", nil, headers, body)
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"answers":%d,"microseconds":%d,"refused":%d,"broken":%d,"p50":%d,"p99":%d,"max":%d}\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), latency.max
  ))
end
