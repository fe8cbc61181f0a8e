// Package retry pairs throttle with github.com/hashicorp/go-retryablehttp.
//
//	client := retry.NewClient(transport) // a *throttle.Transport, or a *choice.Choice
//	resp, err := client.Get("https://api.example.com/orders")
//
// or, for code that wants an [http.Client]:
//
//	client := retry.NewClient(transport).StandardClient()
//
// # The right way round
//
// The throttle belongs inside the retrier, so that every attempt is charged:
//
//	retry.NewClient(throttle.Must(throttle.New(throttle.Config{…})))
//
// The wrong way round compiles just as well:
//
//	retrier := retryablehttp.NewClient()
//	throttle.New(throttle.Config{Base: &retryablehttp.RoundTripper{Client: retrier}, …}) // wrong
//
// There one charge pays for five requests. The limit is exceeded fivefold just
// when the upstream is in trouble, the retries are not spaced, and the throttle
// sees only the last answer, so that the fleet does not learn of four refusals.
//
// # Waiting
//
// An answer by which a policy closes a budget closes it for the fleet. Its request
// is repeated at once, and the repeat waits in line for the budget, as long as its
// context and MaxWait allow. MaxWait, a minute by default, holds for each
// attempt: all attempts together may wait for longer, and a deadline of the context
// bounds them all. If that is not long enough, it is refused at once with
// a *[throttle.LimitError], and the upstream's answer is dropped. A penalty that is
// shorter than a usual back-off is not trusted: then [Backoff] waits beside the
// budget, so that five attempts outlast a storm of seven seconds, whatever its
// refusals say. Where no policy speaks for a request [Backoff] obeys Retry-After
// for this one caller, within reason. If the context leaves no time for a wait, it
// is not begun: the caller gets the answer, which says more than an error about the
// context.
//
// [http.Client].Timeout of the standard client, like the deadline of a context, is
// for a request with all its repeats. HTTPClient.Timeout is for one attempt, the
// wait for its budget included; it is better not set. Where it is set, a request
// of an idempotent method whose attempt ran out of time is sent again, and an
// Idempotency-Key does not count. Nothing further bounds the time that repeats may
// take.
//
// # What is repeated
//
// See [CheckRetry]. In short: a refused request is always repeated, because an
// upstream that refuses does not act. A request that failed in any other way is
// repeated only if it is idempotent, by its method or by an Idempotency-Key.
// go-retryablehttp itself repeats a POST after any failure, and so the upstream may
// act twice on one request.
//
// A refusal is a 429, and any answer below 500 that a policy's Answer takes for
// refused ([throttle.VerdictRefused]), a 200 with a code in its body too. So an
// Answer must not return VerdictRefused for a request that was granted. After a
// VerdictNotRefused the request is not repeated, even after a 429. Neither is a
// request that was done in part (VerdictPartly).
//
// # Bodies
//
// A request is repeated only if its body can be had again. Functions do that
// without holding it in memory:
//
//	open := func() (io.Reader, error) { return os.Open(name) }
//	r, err := retryablehttp.NewRequestWithContext(ctx, "PUT", url, retryablehttp.ReaderFunc(open))
//
// Any other reader is read into memory by go-retryablehttp before the first
// attempt. Through the standard client a body needs a GetBody, as
// [http.NewRequest] makes it for buffers, byte slices and strings; without one
// the first answer is the last. Requests made around an [http.Request] by hand,
// &retryablehttp.Request{Request: r}, are not for bodies: their body is sent
// once and never renewed.
//
// Of an answer that is not the last at most 4 KB are read, to keep its
// connection, and only for a moment. The last one is the caller's, unread.
//
// # Errors
//
// Errors are a *url.Error around the cause, as from [http.Client], without "giving up
// after" and with only the host of the URL. The standard client, being an
// [http.Client], puts the URL in again.
package retry
