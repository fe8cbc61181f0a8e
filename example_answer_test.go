package throttle_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A penalty that knows its upstream's own refusal, and leaves the usual ones
// to RetryAfter.
func ExampleRetryAfter() {
	penalty := func(resp *http.Response) time.Duration {
		if resp.StatusCode == http.StatusTeapot { // this address is banned
			return 2 * time.Minute
		}
		return throttle.RetryAfter(resp)
	}

	limited := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"30"}}}
	fmt.Println(penalty(limited))

	vague := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"soon"}}}
	fmt.Println(penalty(vague))

	banned := &http.Response{StatusCode: http.StatusTeapot}
	fmt.Println(penalty(banned))
	// Output:
	// 30s
	// 1s
	// 2m0s
}

// Some upstreams refuse with a code in the body of a 200. The penalty looks at
// the first bytes, and the caller still reads all of them.
func ExamplePeekBody() {
	penalty := func(resp *http.Response) time.Duration {
		head, err := throttle.PeekBody(resp, 1024)
		if err != nil || !bytes.Contains(head, []byte(`"errcode":130101`)) {
			return throttle.RetryAfter(resp)
		}
		return 10 * time.Minute
	}

	resp := &http.Response{
		StatusCode: http.StatusOK,
		Body:       io.NopCloser(strings.NewReader(`{"errcode":130101,"errmsg":"send too fast"}`)),
	}
	fmt.Println(penalty(resp))

	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	// Output:
	// 10m0s
	// {"errcode":130101,"errmsg":"send too fast"} <nil>
}
