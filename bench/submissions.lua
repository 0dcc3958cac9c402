-- Makes submissions for wrk: each thread draws its own, and keys and bodies follow from seed and thread alone, so that a second run with the
-- same seed sends the same requests again. Answers are not looked at here, which would cost more than sending: the run counts rows.
-- Arguments: token, seed, number of awards, how many requests to send before beginning again (0: never), and which to begin with.
local threads = 0
local random = math.random

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(args)
  token = args[1]
  seed = tonumber(args[2])
  awards = tonumber(args[3])
  cycle = tonumber(args[4])
  headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. token }
  begin()
  for _ = 1, tonumber(args[5]) do draw() end
end

function begin()
  count = 0
  math.randomseed(seed * 1000 + number)
end

-- The next key, award, amount: always as many numbers from the generator.
function draw()
  if cycle > 0 and count == cycle then begin() end
  count = count + 1
  local key = string.format(
    "%04x%04x-%04x-4%03x-8%03x-%04x%04x%04x",
    random(0, 65535), random(0, 65535), random(0, 65535), random(0, 4095), random(0, 4095),
    random(0, 65535), random(0, 65535), random(0, 65535)
  )
  return key, random(1, awards), random(1, 1000000)
end

function request()
  local key, award, cents = draw()
  headers["Idempotency-Key"] = key
  local body = string.format(
    '{"award_id":"A-2025-%04d","submission_timestamp":"2025-07-01T09:00:00Z","amount_cents":%d,"currency":"USD","invoice_ref":"INV-%06d"}',
    award, cents, count
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
