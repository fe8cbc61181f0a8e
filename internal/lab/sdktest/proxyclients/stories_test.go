package proxyclients

import (
	"context"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClients: each client plays each story.
func TestClients(t *testing.T) {
	s := newScene(t)
	stories := []struct { // they wait for most of their time
		name string
		play func(*scene, *testing.T, *client)
	}{
		{"held", (*scene).held},
		{"streamed", (*scene).streamed},
		{"stopped", (*scene).stopped},
		{"left", (*scene).left},
		{"banned", (*scene).banned},
		{"coded", (*scene).coded},
		{"refused", (*scene).refused},
		{"repeated", (*scene).repeated},
		{"defaults", (*scene).defaults},
	}
	for _, c := range played() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, story := range stories {
				t.Run(story.name, func(t *testing.T) {
					t.Parallel()
					story.play(s, t, c)
				})
			}
		})
	}
	t.Run("lost host", s.lostHost)
	t.Run("forwarded", s.forwarded)
	t.Run("signed", s.signed)
	t.Run("tunnelled", s.tunnelled)
}

// held: two processes of a client, before two proxies, are held so that no window has a request
// too many. The upstream would ban them.
func (s *scene) held(t *testing.T, c *client) {
	p := place{c.name, "held"}
	var programs []*program
	for _, address := range s.proxies {
		programs = append(programs, s.start(t, c, address, p, "calls", "2"))
	}
	for _, one := range programs {
		all := one.all()
		require.Len(t, all, 2)
		for _, r := range all {
			require.Equal(t, http.StatusOK, r.Status, "%+v", r)
			require.Contains(t, r.Timing, "throttle;dur=")
		}
	}
	require.Equal(t, 4, s.count(p))
}

// streamed: an event arrives before the next is sent.
func (s *scene) streamed(t *testing.T, c *client) {
	p := place{c.name, "streamed"}
	one := s.start(t, c, s.proxies[0], p, "stream")
	require.Equal(t, "first", one.next().Event)
	g := <-s.gate(p)
	close(g.pass)
	require.Equal(t, "last", one.next().Event)
	require.Nil(t, one.next())
}

// stopped: when a client leaves in the middle of a stream, the upstream notices.
func (s *scene) stopped(t *testing.T, c *client) {
	p := place{c.name, "stopped"}
	one := s.start(t, c, s.proxies[0], p, "stop")
	g := <-s.gate(p)
	require.Equal(t, "first", one.next().Event)
	require.Nil(t, one.next())
	<-g.gone
}

// left: a client whose own timeout ends while it is held frees its place, and is not sent.
func (s *scene) left(t *testing.T, c *client) {
	p := place{c.name, "led"}
	waiting := func() bool {
		status, err := s.led.Status(context.WithoutCancel(t.Context()), c.name)
		return err == nil && status.Waiting == 1
	}
	own := func() (answered chan int) {
		answered = make(chan int, 1)
		go func() {
			resp, err := s.send(t.Context(), s.proxies[1], p)
			if err == nil {
				resp.Body.Close()
				answered <- resp.StatusCode
			}
		}()
		return answered
	}
	before := own()
	first := <-s.gate(p)

	for timeout, waited := 2, false; !waited; timeout *= 2 { // until it is seen to wait, on a busy machine
		one := s.start(t, c, s.proxies[0], p, "TIMEOUT="+strconv.Itoa(timeout), "RETRIES=0", "calls", "1")
		seen := during(waiting)
		r := one.next()
		waited = seen()
		require.Equal(t, c.late, r.Error, "%+v", r)
		require.Nil(t, one.next())
		require.Eventually(t, func() bool { return !waiting() }, time.Minute, 5*time.Millisecond)
	}

	after := own()
	require.Eventually(t, waiting, time.Minute, 5*time.Millisecond)
	close(first.pass)
	require.Equal(t, http.StatusOK, <-before)
	second := <-s.gate(p)
	close(second.pass)
	require.Equal(t, http.StatusOK, <-after)
	require.Equal(t, 2, s.count(p), "the client's call was sent")
}

// during looks for a condition, until it holds or seen is called, which returns whether it held.
func during(condition func() bool) (seen func() bool) {
	stop, held := make(chan struct{}), make(chan bool, 1)
	go func() {
		again := time.NewTicker(5 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				if condition() {
					held <- true
					return
				}
			case <-stop:
				held <- false
				return
			}
		}
	}()
	return func() bool {
		close(stop)
		return <-held
	}
}

// banned: an answer 429 with Retry-After, compressed if the client wants that, closes the budget
// for all.
func (s *scene) banned(t *testing.T, c *client) {
	p := place{c.name, "banned"}
	all := s.start(t, c, s.proxies[0], p, "RETRIES=0", "calls", "2").all()
	require.Len(t, all, 2)
	require.Equal(t, http.StatusTooManyRequests, all[0].Status, "%+v", all[0])
	require.Equal(t, "3600", all[0].RetryAfter)
	require.Empty(t, all[0].Via, "the upstream's own answer")
	require.Contains(t, string(all[0].Answer), "slow down")
	s.requireRefused(t, c, all[1], "banned", "penalty")
	status, h := s.call(t, s.proxies[1], p)
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "1.1 throttle", h.Get("Via"))
	require.Equal(t, 1, s.count(p))
}

// coded: so does a code in an answer 200, as DingTalk has it.
func (s *scene) coded(t *testing.T, c *client) {
	p := place{c.name, "coded"}
	all := s.start(t, c, s.proxies[0], p, "RETRIES=0", "calls", "2").all()
	require.Len(t, all, 2)
	require.Equal(t, http.StatusOK, all[0].Status, "%+v", all[0])
	require.Contains(t, string(all[0].Answer), "90018")
	require.Equal(t, c.brotli, strings.Contains(s.coding(p), "br"))
	s.requireRefused(t, c, all[1], "coded", "penalty")
	require.Equal(t, 1, s.count(p))
}

// refused: a call that cannot fit is refused at once, and the client says why. A client that
// repeats does so at the proxy alone.
func (s *scene) refused(t *testing.T, c *client) {
	p := place{c.name, "scarce"}
	status, _ := s.call(t, s.proxies[0], p)
	require.Equal(t, http.StatusOK, status)
	once := newTap(t, s.proxies[0])
	r := s.run(t, c, once.Addr().String(), p, "RETRIES=0", "calls", "1")
	s.requireRefused(t, c, r, "scarce", "1/h")
	require.Equal(t, 1, once.requests())
	between := newTap(t, s.proxies[0])
	if c.tries > 0 {
		r = s.run(t, c, between.Addr().String(), p, "calls", "1")
		s.requireRefused(t, c, r, "scarce", "1/h")
		require.Equal(t, c.tries, between.requests())
	} else {
		r = s.run(t, c, between.Addr().String(), p, "SIGNAL=3", "calls", "1")
		require.Equal(t, "APIUserAbortError", r.Error, "%+v", r)
		require.Equal(t, 1, between.requests())
	}
	require.Equal(t, 1, s.count(p))
}

// repeated: the refusal says when there is room, and a client that repeats by itself has its
// answer then.
func (s *scene) repeated(t *testing.T, c *client) {
	p := place{c.name, "short"}
	wish := "PREFER=wait=0"
	if c.wish != "" {
		wish = c.wish + "=Prefer: wait=0"
	}
	between := newTap(t, s.proxies[0])
	all := s.start(t, c, between.Addr().String(), p, wish, "calls", "2").all()
	require.Len(t, all, 2)
	require.Equal(t, http.StatusOK, all[0].Status, "%+v", all[0])
	if c.obeys {
		require.Equal(t, http.StatusOK, all[1].Status, "%+v", all[1])
		require.Equal(t, 3, between.requests())
		return
	}
	s.requireRefused(t, c, all[1], "short", "1/4s")
	require.Equal(t, 2, between.requests())
	if c.told {
		all = s.start(t, c, between.Addr().String(), p, wish, "RETRIES=1", "calls", "2").all()
		require.Len(t, all, 2)
		require.Equal(t, http.StatusOK, all[0].Status, "%+v", all[0])
		require.Equal(t, http.StatusOK, all[1].Status, "%+v", all[1])
	}
}

// defaults: what a client does unless told otherwise, as the client itself tells.
func (s *scene) defaults(t *testing.T, c *client) {
	if c.timeout == untold {
		return
	}
	r := s.run(t, c, s.proxies[0], place{c.name, "defaults"}, "defaults")
	require.InDelta(t, c.timeout, r.Timeout, 0)
	require.Equal(t, c.retries, r.Retries)
}

// requireRefused requires that the proxy has refused a call, and that the client shows why.
func (s *scene) requireRefused(t *testing.T, c *client, r *report, policy, why string) {
	t.Helper()
	require.Equal(t, http.StatusTooManyRequests, r.Status, "%+v", r)
	require.Equal(t, c.refused, r.Error, "%+v", r)
	seconds, err := strconv.Atoi(r.RetryAfter)
	require.NoError(t, err)
	require.Positive(t, seconds)
	require.LessOrEqual(t, seconds, 3601)
	named, detail := r.problem(t)
	require.Equal(t, policy, named)
	require.Contains(t, detail, why)
	t.Logf("%s: %s", r.Error, r.Message)
}

// lostHost: a client that resolves a path with a slash before it loses the host, and is told so.
func (s *scene) lostHost(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("php", "-r", `
		require 'GuzzleHttp/autoload.php';
		$client = new GuzzleHttp\Client(['base_uri' => $argv[1] . '/', 'http_errors' => false]);
		foreach (['chat/completions', '/chat/completions'] as $path) {
			$answer = $client->post($path, ['json' => ['model' => 'm']]);
			echo $answer->getStatusCode(), ' ', $answer->getBody(), "\n";
		}`, s.baseURL(s.proxies[0], place{"guzzle", "defaults"})).CombinedOutput()
	require.NoError(t, err, "%s", out)
	kept, lost, _ := strings.Cut(string(out), "\n")
	require.Contains(t, kept, "200 ")
	require.Contains(t, lost, "403 ")
	require.Contains(t, lost, "no policy names this host")
}
