// Package waitapi is the waiting API: an HTTP handler that holds callers until the policies of
// [throttle.Limiters] have room, for programs in other languages that cannot send their requests through
// package proxy. The command "throttle proxy" serves it.
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "wait": 5}
//	200 {"permit": "h0b…", "waited": 0.81, "policy": "shop", "lifetime": 60}
//
// The caller then does its work, may say what it turned out to cost (/v1/settle) or that it was
// refused (/v1/penalize), and releases the permit (/v1/release). The fields are those of
// [throttle.Demand] and the arguments of [throttle.Permit]; times are in seconds. openapi.yaml, which
// /v1/openapi.yaml serves, has all requests and answers. Errors are application/problem+json.
//
// The handler lets in whoever reaches it, as a limiter does. Package proxy checks callers before
// it; a program that serves the handler by itself has to do so.
//
// # Nothing is charged too little
//
// Each permit that a caller may have stands for a start that is charged: the policies count at least as much
// as callers do, if a caller uses one permit for one piece of work, right after the answer. Therefore:
//
//   - A start is given back only if no caller can have an answer for it: all callers that waited for
//     it have left, or writing their answers failed. An answer that was written may have arrived. It stays
//     charged, also if the caller has gone.
//   - A caller that had no answer may ask again with the same Idempotency-Key. While the first request
//     waits both wait for one permit, and both get it. Later the caller gets the same permit again, at a start that is now: if
//     the first is too old, it is given back, and another is booked, before the callers that stand in line. So
//     a key is for one piece of work, and must not be used again once the work has begun: a program that was
//     started anew, and does not know, uses another key. After /v1/settle or /v1/penalize the handler
//     knows, and answers 409.
//   - A permit that nobody releases expires. What counts starts stays charged. What counts work in flight
//     is free then, so if the work still goes on, the upstream sees more in flight than the
//     limit: ask for a lifetime that is longer than the work. The same is true of Close.
//   - A settled cost is charged also if the caller leaves before the answer. After a 503 the caller repeats
//     it: settling twice is settling once. A cost that is told after the permit is gone is not
//     charged, and the answer is 410.
//
// What is charged too much: a start whose answer was written and not received, if the caller does
// not ask again; and after the handler's process has died, permits that it was acquiring.
//
// A start is for now. What is sent later than the policy's Jitter after the answer can arrive
// in another window ([throttle.Policy] has the details), so a policy for callers that need long from the
// answer to the first byte needs a larger Jitter.
package waitapi
