package throttle_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// FuzzTransport sends a few odd requests, at odd moments, through odd policies to
// a base that does odd things, all in virtual time. Nothing panics but what the
// base panics with; each body is closed once; the request stays as it was; an
// error names its policy or is not ours; and nothing is left behind.
func FuzzTransport(f *testing.F) {
	for _, target := range []string{
		"https://user:" + secretToken + "@example.com:8443/a/b?access_token=" + secretToken, "*", "", "//example.com", "/only/a/path",
		"http://[fe80::1%25eth0]:80/%2e%2e//x;y/", "http://xn--bcher-kva.example/%zz", "http://bücher.example./a%2Fb/", "mailto:a@b",
		"http://a..b/", "https://EXAMPLE.com:/", "http://:80/", "http://[::1/", "http://example.com/\x00", "http://example.com:99999999/",
	} {
		f.Add(target, "GET", "1", []byte{})
		f.Add(target, "", "", []byte(target))
	}
	f.Add("http://example.com/x", "BREW\r\n", "Fri, 31 Dec 9999 23:59:59 GMT", []byte("\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"))
	for policy := range fuzzNames { // each alone, and always the same decision
		for decision := range byte(12) {
			mask := binary.LittleEndian.AppendUint16(nil, 1<<policy)
			f.Add("http://a.example.com/x", "GET", "1", append(mask, bytes.Repeat([]byte{decision}, 60)...))
		}
	}
	f.Fuzz(func(t *testing.T, target, method, field string, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			playTransport(t, &fuzzScript{field: field, rest: script}, target, method)
		})
	})
}

// playTransport plays one script.
func playTransport(t *testing.T, s *fuzzScript, target, method string) {
	store, seen := memstore.New(), &events{}
	tr, err := throttle.New(throttle.Config{
		Store: store, Policies: s.policies(), Base: &fuzzBase{script: s}, Observe: seen.observe,
		MaxWait: []time.Duration{0, 0, -1, time.Second}[s.next(4)],
	})
	require.NoError(t, err)
	var all sync.WaitGroup
	var sent []*fuzzRequest
	for range 1 + s.next(4) {
		r := s.request(t, target, method)
		sent = append(sent, r)
		all.Go(func() { r.send(t, tr) })
		time.Sleep(s.moment())
	}
	if s.next(8) == 0 {
		require.NoError(t, tr.SetPolicies(s.policies()))
	}
	all.Wait()
	time.Sleep(time.Second) // a base that tells of connections only now and then is given requests too early
	synctest.Wait()

	for _, r := range sent {
		r.check(t)
		for _, c := range tr.Explain(r.req) {
			st, err := store.Status(t.Context(), c)
			require.NoError(t, err)
			if c.Limit.Kind() != throttle.KindLeakyBucket { // what a start costs there is yet to come
				require.Zero(t, st.Waiting, "P7: %s", c.Budget.Policy)
			}
			require.LessOrEqual(t, st.Paused, throttle.MaxPenalty)
			if c.Limit.Kind() == throttle.KindConcurrency {
				require.Zero(t, st.Used, "P13: in flight")
			}
		}
	}
	var told recording
	for _, e := range seen.all {
		told.see(e.Kind, e.Policy, e.Budget, e.Err)
		require.GreaterOrEqual(t, e.Duration, time.Duration(0))
		require.True(t, e.Kind != throttle.Penalized || e.Duration <= throttle.MaxPenalty)
	}
	require.NotContains(t, told.String(), secretToken)
}

// send sends the request, once at most.
func (r *fuzzRequest) send(t *testing.T, tr *throttle.Transport) {
	defer r.cancel()
	defer func() {
		if v := recover(); v != nil && v != errFuzzPanic {
			t.Errorf("P12: panicked with %v", v)
		}
	}()
	resp, err := tr.RoundTrip(r.req)
	r.err = err
	if err != nil && !errors.Is(err, errFuzzBase) {
		require.Nil(t, resp)
	}
	if resp == nil || err != nil {
		return // as the base has it
	}
	time.Sleep(r.reads)
	if resp.Body == nil || r.forgets {
		return // the context ends what is in flight
	}
	defer resp.Body.Close()
	if r.reads > 0 {
		_, _ = resp.Body.Read(make([]byte, 100))
	}
}

// check holds a request that is over against what is promised.
func (r *fuzzRequest) check(t *testing.T) {
	if r.body != nil {
		require.EqualValues(t, 1, r.body.closed.Load(), "P13: the body is closed once")
	}
	require.Equal(t, r.was, lookOf(r.req), "P13: the request is not changed")
	if r.err == nil || errors.Is(r.err, errFuzzBase) {
		return
	}
	var told recording
	told.see(r.err)
	require.NotContains(t, told.String(), secretToken)
	var limited *throttle.LimitError
	var wrong *throttle.ConfigError
	switch {
	case errors.As(r.err, &limited):
		require.Contains(t, fuzzNames, limited.Policy)
		require.ErrorContains(t, r.err, `"`+limited.Policy+`"`)
	case errors.As(r.err, &wrong):
		require.Contains(t, fuzzNames, wrong.Policy)
		require.ErrorContains(t, r.err, `"`+wrong.Policy+`"`)
	default:
		require.True(t, errors.Is(r.err, context.Canceled) || errors.Is(r.err, context.DeadlineExceeded), "%v", r.err)
	}
}
