// Package feedback reads what an upstream says about its limits: in the status,
// in headers, in the body. A classifier is a small value that reads like the
// vendor's table, and gives a [throttle.Policy] its Answer:
//
//	Answer: feedback.First(
//		feedback.When{Status: []int{418, 429}}.Then(feedback.RetryAfter(time.Minute)),
//		feedback.Codes{
//			Fields: []string{"errcode"},
//			Lasts: map[string]time.Duration{
//				"90018":  time.Second,
//				"130101": 10 * time.Minute,
//			},
//		}.Answer,
//	),
//
// # Parts
//
// All parts are of one kind, a [Reader], and each is attached once. [When] says which
// answers are looked at. For how long a refusal closes the budget is
// said by [For], [RetryAfter], [Codes], [Text], [Printed], [UntilMidnight] and
// [UntilFirst]; what is left of the budget by [Headers] and [RateLimit], which close it
// too if a 403, 429 or 503 says so, and by [Amount.Left]. What a request has cost is said
// by [Amount.Cost], and by [Events] of a stream; [Estimates] learn from it. [NotRefused]
// knows what only looks like a refusal, and [Acted] what was done in part.
//
// [First] puts together parts that know different answers: it stops at the first that
// has a verdict. [All] puts together parts that know different things of one answer:
//
//	Answer: feedback.All(
//		feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
//		feedback.Amount{Fields: []string{"usage.points"}}.Cost,
//	),
//
// Where no part has a verdict, or closes the budget, the default of
// [throttle.Policy.Answer] reads the answer: [throttle.RetryAfter]. [LeaveOpen] at the end
// of a First keeps the default away.
//
// # What cannot be read
//
// A value that cannot be read, or that names a moment in the past, counts as
// missing. It never counts as 0, which would allow the next request. A moment is
// compared with the answer's own Date and with the clock of this machine, and the
// shorter time counts, so that no single wrong clock closes a budget for hours. A
// moment in whole seconds gets another second, and a moment in minutes another
// minute, because that much may have been cut off. A moment without a zone cannot be
// read, unless [At] tells the zone. No penalty is longer than [throttle.MaxPenalty].
//
// Of a field that comes twice the line counts that allows less: the smaller rest, and the
// longer time.
//
// # The Retry-After of a 429
//
// No penalty of a 429 is shorter than its Retry-After asks, but for the part of a second
// that the answer itself tells. [Headers] and [RateLimit] take Retry-After in place of a
// Reset, and obey it also if something is left, because another limit of the upstream
// has refused. [Codes], [Text] and [Printed] know which refusals are theirs, and say
// nothing of others: the default closes the budget then.
//
// # Bodies
//
// A body is looked at as by [PeekBody], so that its reader sees
// every byte; at most 64 KB of it; and no further than it takes to decide. One in
// gzip or deflate is decoded for that; an answer in br or zstd cannot be read, and
// [throttle.Config.Observe] is told so once for each policy. A body is never looked at
// if it is an event stream or in several parts.
// Of the others, those are looked at that
//
//   - belong to an error (400 and above), or
//   - say that they are no longer than what would be looked at, or
//   - are JSON, HTML or XML, of which nobody can use one half, or
//   - do not say how long they are, and whose first bytes begin a JSON object or array,
//     under whatever type but those of files, pictures, sounds, films and lines of
//     JSON. The wait for those bytes is a tenth of a second at most.
//
// So an answer that streams is not held up, and a large file is not touched. A
// stream that calls itself JSON is held until its first value has come: leave it
// out by a [When].
package feedback
