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
// All parts are of one type, [Reader]. [When] selects answers. [For], [RetryAfter], [Codes],
// [Text], [Printed], [UntilMidnight] and [UntilFirst] say how long a refusal closes the budget.
// [Told] reads the limit itself. [Headers] and [RateLimit] read the remaining quota, and close the
// budget if a 403, 429 or 503 says that nothing remains; [Amount.Left] reads the quota from the
// body. [Amount.Cost] reads the cost of a request, [Events] reads it from a stream, and [Estimates]
// learn from it. [NotRefused] marks answers that only look like refusals, and [Acted] marks
// refusals of requests that were partly executed.
//
// [First] combines parts that know different answers: it stops at the first part with a verdict.
// [All] combines parts that know different facts of one answer:
//
//	Answer: feedback.All(
//		feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}.Answer,
//		feedback.Amount{Fields: []string{"usage.points"}}.Cost,
//	),
//
// If no part has a verdict or closes the budget, the default of [throttle.Policy.Answer] applies:
// [throttle.RetryAfter]. [LeaveOpen] at the end of a First suppresses the default.
//
// # What cannot be read
//
// A value that cannot be parsed, or that names a moment in the past, counts as missing. It never
// counts as 0, which would allow the next request. A moment is compared with the answer's own Date
// and with the clock of this machine, and the shorter duration counts: a single wrong clock cannot
// close a budget for hours. A moment in whole seconds is moved a second later, and a moment in
// whole minutes a minute later, because up to that much may have been cut off. A moment without a
// zone cannot be parsed, unless [At] supplies the zone. No penalty exceeds [throttle.MaxPenalty].
//
// If a field comes twice, the stricter line counts: the smaller quota and the longer duration.
//
// # The Retry-After of a 429
//
// No penalty of a 429 is shorter than its Retry-After, except for the fraction of a second by which
// the body's own duration is more precise. [Headers] and [RateLimit] prefer Retry-After to a Reset,
// and obey it even if quota remains, because then a different limit of the upstream has refused.
// [Codes], [Text] and [Printed] ignore refusals that they do not know; the default closes the
// budget then.
//
// # Bodies
//
// Bodies are read as by [PeekBody]: at most 64 KB of a body, no further than a decision needs, and
// the body's reader still sees every byte. Bodies in gzip or deflate are decoded; br and zstd
// cannot be read, and [throttle.Config.Observe] reports them once for each policy. Event streams
// and multipart bodies are never read. All other bodies are read if they
//
//   - belong to an error (400 and above), or
//   - state a length within the bytes to be read, or
//   - are JSON, HTML or XML, which are useless in part, or
//   - state no length, and begin as a JSON object or array, under any media type except files,
//     images, audio, video and JSON lines. The wait for the first bytes is a tenth of a second
//     at most.
//
// So a streaming answer is not delayed, and a large file is not read. A stream that calls itself
// JSON is held until its first value has come: exclude it by a [When].
package feedback
