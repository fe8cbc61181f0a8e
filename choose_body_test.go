package throttle_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/choice"
)

// A countedBody counts how often it is closed.
type countedBody struct {
	io.Reader
	closed *atomic.Int32
}

func (b countedBody) Close() error {
	b.closed.Add(1)
	return nil
}

// bodies makes bodies, and counts those that were made and those that were closed.
type bodies struct{ made, closed atomic.Int32 }

func (b *bodies) new(text string) io.ReadCloser {
	b.made.Add(1)
	return countedBody{strings.NewReader(text), &b.closed}
}

// A reader is a base that reads the body of each request and notes where it came.
type reader struct {
	dialer
	early bool // it reads before it has a connection
	got   []string
}

func (d *reader) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	var text []byte
	if d.early {
		text = must(io.ReadAll(r.Body))
	}
	if err := d.connect(r); err != nil {
		return nil, err
	}
	if !d.early {
		text = must(io.ReadAll(r.Body))
	}
	d.got = append(d.got, r.URL.Host+": "+string(text))
	return d.write(r)
}

// TestP13_AChoiceSendsABodyOnce bans the first variant while its connection is dialled. The request goes to the
// second one with its body, if that can be had again; and stays with the first if not.
func TestP13_AChoiceSendsABodyOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		getBody bool
		early   bool
		own     bool // the second variant has a body of its own
		closed  bool // both variants are closed at first, the second one for longer
		ban     time.Duration
		maxWait time.Duration
		want    string
	}{
		{name: "no ban", want: "a: text"},
		{name: "no ban, other body", own: true, want: "a: text"},
		{name: "both made, other body", own: true, closed: true, want: "a: text"},
		{name: "not read", ban: time.Minute, want: "b: text"},
		{name: "can be read again", getBody: true, early: true, ban: time.Minute, want: "b: text"},
		{name: "other body", getBody: true, own: true, early: true, ban: time.Minute, want: "b: TEXT"},
		{name: "cannot be read again", early: true, ban: time.Minute, want: "a: text"},
		{name: "a ban of seconds", getBody: true, ban: 3 * time.Second, want: "b: text"},
		{name: "no time to wait", getBody: true, ban: time.Minute, maxWait: 1200 * ms, want: "b: text"},
		{name: "short ban", getBody: true, ban: 1200 * ms, want: "a: text"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all bodies
				d := &reader{dialer: *newDialer(always(time.Second)), early: c.early}
				s, _ := newSite(t, throttle.Config{Base: d, MaxWait: c.maxWait}, throttle.PerSecond(5), throttle.PerSecond(5))
				variants := hosts(2)
				if c.own {
					variants[1].Change = func(r *http.Request) error {
						r.URL.Host, r.Body = "b", all.new("TEXT")
						r.GetBody = func() (io.ReadCloser, error) { return all.new("TEXT"), nil }
						return nil
					}
				}
				r := must(http.NewRequestWithContext(t.Context(), http.MethodPost, home, nil))
				r.Body = all.new("text")
				if c.getBody {
					r.GetBody = func() (io.ReadCloser, error) { return all.new("text"), nil }
				}
				if c.closed {
					s.pause(t, "a", 300*ms)
					s.pause(t, "b", 10*time.Second)
				}
				if c.ban > 0 {
					time.AfterFunc(500*ms, func() { s.pause(t, "a", c.ban-500*ms) })
				}
				require.NoError(t, send(t, must(choice.New(s.t, variants...)), r))
				require.Equal(t, []string{c.want}, d.got)
				require.Equal(t, all.made.Load(), all.closed.Load())
				s.isIdle(t, "a", "b")
				if c.want[0] == 'b' {
					require.Equal(t, 2*time.Second, time.Since(s.begin))
				}
			})
		})
	}
}

// A rewoundBody is the one body of a request whose GetBody rewinds it, as that of some SDKs does.
type rewoundBody struct{ *strings.Reader }

func (b *rewoundBody) Read(p []byte) (int, error) {
	runtime.Gosched() // another variant would come in between
	return b.Reader.Read(p[:1])
}

func (b *rewoundBody) Close() error { return nil }

// readersOf is the context key of how many variants read the body of a request.
type readersOf struct{}

// TestP13_AChoiceReadsABodyOnceAtATime replaces the policies while requests wait in four variants, whose costs are
// the lengths of their bodies. Each body is read by one variant at a time, from its beginning to its end.
func TestP13_AChoiceReadsABodyOnceAtATime(t *testing.T) {
	const text = "sixteen bytes..."
	synctest.Test(t, func(t *testing.T) {
		var priced, half, together atomic.Int32
		limits := slices.Repeat([]throttle.Limit{throttle.PerMinute(1)}, 4)
		policies := hostTable(limits...)
		for i := range policies {
			policies[i].Cost = func(r *http.Request) int {
				priced.Add(1)
				readers := r.Context().Value(readersOf{}).(*atomic.Int32)
				if readers.Add(1) > 1 {
					together.Add(1)
				}
				defer readers.Add(-1)
				if len(must(io.ReadAll(must(r.GetBody())))) != len(text) {
					half.Add(1)
				}
				return 1
			}
		}
		s, c := newSite(t, throttle.Config{}, limits...)
		require.NoError(t, s.t.SetPolicies(policies))
		ctx, stop := context.WithCancel(t.Context())
		var requests sync.WaitGroup
		for range 44 {
			body := &rewoundBody{strings.NewReader(text)}
			r := must(http.NewRequestWithContext(context.WithValue(ctx, readersOf{}, new(atomic.Int32)), http.MethodPost, home, body))
			r.GetBody = func() (io.ReadCloser, error) {
				_, err := body.Seek(0, io.SeekStart)
				return body, err
			}
			requests.Go(func() {
				if resp, err := c.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			})
		}
		for range 20 {
			time.Sleep(100 * ms)
			synctest.Wait()
			require.NoError(t, s.t.SetPolicies(policies))
		}
		synctest.Wait()
		require.Greater(t, priced.Load(), int32(40*4*20), "all variants were priced again each time")
		stop()
		requests.Wait()
		require.Zero(t, together.Load(), "variants that read a body while another variant does")
		require.Zero(t, half.Load(), "costs of half a body")
	})
}
