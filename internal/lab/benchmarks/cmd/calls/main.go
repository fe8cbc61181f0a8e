// Calls makes many calls of one kind only, so that a profiler that counts
// instructions can tell what one takes: see instructions.sh.
//
//	calls acquire|roundtrip|wait|answer|row|dingtalk <how many>
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// plenty is a limit for each second that is never reached.
const plenty = 100_000_000

// kinds are the kinds of calls: each returns a call that finds room.
var kinds = map[string]func(context.Context) (func() error, error){
	"acquire":   acquire,
	"roundtrip": roundTrip,
	"wait":      wait,
	"answer":    func(ctx context.Context) (func() error, error) { return answered(ctx, onePolicy()) },
	"row":       func(ctx context.Context) (func() error, error) { return answered(ctx, oneRow()) },
	"dingtalk":  func(ctx context.Context) (func() error, error) { return answered(ctx, table()) },
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

// run makes as many calls of a kind as the arguments say, and stops at the first that fails.
func run(args []string) error {
	if len(args) != 2 || kinds[args[0]] == nil {
		return fmt.Errorf("usage: calls acquire|roundtrip|wait|answer|row|dingtalk <how many>")
	}

	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}

	// The context can end, as the contexts of programs can: a context that never ends is cheaper to wait for.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	call, err := kinds[args[0]](ctx)
	for i := 0; i < n && err == nil; i++ {
		err = call()
	}

	return err
}

// acquire returns a call that takes a start from a Limiter.
func acquire(ctx context.Context) (func() error, error) {
	l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.PerSecond(plenty)})
	ctx = throttle.WithMaxWait(ctx, throttle.Forever)
	return func() error {
		_, err := l.Acquire(ctx, "", 1)
		return err
	}, err
}

// roundTrip returns a call that sends a request through a transport. The answer has no body.
func roundTrip(ctx context.Context) (func() error, error) {
	t, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Base:    idle{}, Store: memstore.New(),
		Policies: []throttle.Policy{{Name: "p", Match: "api.example.com/v1/", Limit: throttle.PerSecond(plenty)}},
	})
	if err != nil {
		return nil, err
	}

	// One request is sent again and again, so that only the transport's own work counts.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/v1/users", nil)
	return func() error {
		resp, err := t.RoundTrip(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}, err
}

// wait returns a call of golang.org/x/time/rate.
func wait(ctx context.Context) (func() error, error) {
	l := rate.NewLimiter(plenty, plenty)
	return func() error { return l.Wait(ctx) }, nil
}

func onePolicy() []throttle.Policy {
	return []throttle.Policy{{Name: "p", Match: "*.dingtalk.com/", Limit: throttle.PerSecond(plenty)}}
}

// table has all rows of the preset, which find room.
func table() []throttle.Policy {
	return dingtalk.Policies(dingtalk.Options{IPLimit: plenty, Edition: dingtalk.Edition{PerSecond: plenty}})
}

// oneRow has one of the rows.
func oneRow() []throttle.Policy {
	return slices.DeleteFunc(table(), func(p throttle.Policy) bool { return p.Name != "dingtalk-api" })
}

// answered returns a call that sends a request under some policies, and reads the body of the answer.
func answered(ctx context.Context, policies []throttle.Policy) (func() error, error) {
	t, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Base: answering{}, Store: memstore.New(), Policies: policies})
	if err != nil {
		return nil, err
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oapi.dingtalk.com/topapi/v2/department/listsub?access_token=t", nil)
	return func() error {
		resp, err := t.RoundTrip(req)
		if err != nil {
			return err
		}

		// Read the whole body, as programs do: it begins with the bytes that policies have looked at.
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}

		return resp.Body.Close()
	}, err
}

// answering is a base that answers at once as DingTalk does.
type answering struct{}

var fields = http.Header{"Content-Type": {"application/json;charset=UTF-8"}}

func (answering) RoundTrip(req *http.Request) (*http.Response, error) {
	const answer = `{"errcode":0,"errmsg":"ok","result":{"dept_id":1,"name":"x"},"request_id":"15s4ab8ca3cdz"}`
	return &http.Response{
		StatusCode: http.StatusOK, Header: fields, Request: req,
		Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer)),
	}, nil
}

// idle is a base that answers at once with nothing.
type idle struct{}

func (idle) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}
