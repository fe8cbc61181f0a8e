// Package waitapi is the waiting API: an HTTP handler that holds callers until the policies of
// [throttle.Limiters] have room. It is for programs in other languages that cannot send their
// requests through package proxy. The command "throttle proxy" serves it.
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "wait": 5}
//	200 {"permit": "h0b…", "waited": 0.81, "policy": "shop", "lifetime": 60}
//
// A caller that does not want to wait long, because it has a queue of its own, says that with a place, which is empty at
// first. It is answered 202 with a place in line, and comes again with that, after Retry-After, to any process
// of the fleet: see [throttle.Limiters.Reserve].
//
//	POST /v1/acquire {"demands": [{"policy": "shop", "key": "acme"}], "place": ""}
//	202 {"place": "AcRz…", "retryAfter": 12.3}
//
// The caller then does its work. It may say what the work turned out to cost (/v1/settle), or that
// the work was refused (/v1/penalize). In the end it releases the permit (/v1/release). The fields
// are those of [throttle.Demand] and the arguments of [throttle.Permit]; times are in seconds.
// openapi.yaml, which /v1/openapi.yaml serves, has all requests and answers. Errors are
// application/problem+json.
//
// The handler lets in whoever reaches it, as a limiter does. Package proxy checks callers before
// the handler sees them; a program that serves the handler by itself has to check them, too.
//
// # Nothing is charged too little
//
// Each permit that a caller may have has a start of its own that is charged. So the policies count at
// least as much as callers do, if each permit is used for one piece of work, right after the answer:
//
//   - A start is given back only if no caller can have an answer for it: each caller that waited for
//     the permit has left, or its answer could not be written. An answer that was written may
//     have arrived. Its start stays charged, also if the caller has gone.
//   - A caller that had no answer may ask again with the same Idempotency-Key. If the first request
//     still waits, both wait for one permit, and both get it. If not, the caller gets the same permit for a start
//     that is now: a start that has become too old is given back, and another is booked in the same step. That is
//     right only if the work has not begun. So a key is for one piece of work, and a program that
//     was started anew, and does not know whether its work has begun, uses another key. After
//     /v1/settle or /v1/penalize the handler knows, and answers 409.
//   - A permit that nobody releases expires. What counts starts stays charged. What counts work in
//     flight is free then. If the work still goes on, the upstream sees more in flight than the
//     limit, so a lifetime must be longer than the work. The same is true of [Handler.Close].
//   - A cost that is told is charged, also if the caller leaves before the answer. After a 503 the
//     caller tells it again: settling twice is settling once. A cost that is told after the permit is
//     gone is not charged, and the answer is 410.
//
// Too much is charged for an answer that was written and did not arrive, if the caller does not ask
// again; and for the permits that a process was acquiring when it died.
//
// A start is for now. What is sent later than the policy's Jitter after the answer can arrive in
// another window. Callers that need long from the answer to the first byte need a larger Jitter.
package waitapi
