package sdktest

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// A platform is what a test says of its upstream.
type platform struct {
	http2 bool // it speaks HTTP/2

	// limits are what a call counts for, whatever becomes of it.
	limits func(*call) []limit

	// scopes are what a call belongs to, and what a refusal may close.
	scopes func(*call) []string

	// refusals are the forms in which the platform refuses on purpose.
	refusals []refusal

	// answer does what a call asks for.
	answer func(*call) reply
}

// A call is one request as it has arrived.
type call struct {
	*http.Request
	body []byte
	u    *upstream
}

// A limit is what the upstream allows, and what a call costs of it.
type limit struct {
	budget string
	n      int
	per    time.Duration
	kind   kind
	cost   int
	inside bool // counts only what nothing else has refused
}

// A kind says which windows a limit is for.
type kind int

const (
	sliding kind = iota // any interval
	clock               // the windows of the clock
	opened              // windows that begin with the first arrival after the last one
)

// A refusal is a form of refusing, and what that closes for how long.
type refusal struct {
	name string

	// closes is the scope that is closed from now on; "" if a call of this kind is
	// not refused in this form.
	closes func(*call) string
	lasts  time.Duration

	// reply is the answer to a call while the scope is closed, for left.
	reply func(c *call, left time.Duration) reply
}

// A reply is an answer.
type reply struct {
	status int
	header map[string]string
	body   string
}

func ok(body string) reply { return reply{status: http.StatusOK, body: body} }

// always is for a refusal that closes the same scope for all calls.
func always(scope string) func(*call) string {
	return func(*call) string { return scope }
}

// seconds is a time in whole seconds, rounded up, as Retry-After has it.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(math.Ceil(d.Seconds())))
}
