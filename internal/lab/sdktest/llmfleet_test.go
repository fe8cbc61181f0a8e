package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	anthropicapi "github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	openaiapi "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/presets/openai"
)

// A model is an upstream of language models whose answers stream. It counts tokens by itself, and
// refuses what is above its limit.
type model struct {
	perMinute int
	counts    interface {
		admit(now time.Time, asked tokensAsked) bool // a request comes
		wrote(now time.Time, n int)                  // tokens are written
	}
	events func(q tokensAsked) (begin string, delta func(n int) string, end func(n int) string)
	refuse func(w http.ResponseWriter)

	mu      sync.Mutex
	random  *rand.Rand
	from    time.Time // what is written from then on is measured
	written int
	counted int // by admit
	arrived int
	refused int
}

type tokensAsked struct {
	Max    int `json:"max_tokens"`
	Newer  int `json:"max_completion_tokens"`
	Stream bool
	sent   int
}

// tokensPerSecond is how fast an answer is written.
const tokensPerSecond = 40

// ServeHTTP implements [http.Handler]. An answer takes 0.5 to 30 s.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := tokensAsked{sent: len(body) / 4}
	_ = json.Unmarshal(body, &q)
	q.Max = max(q.Max, q.Newer)
	m.mu.Lock()
	took := 500*time.Millisecond + time.Duration(m.random.Int64N(int64(29500*time.Millisecond)))
	way := time.Duration(m.random.Int64N(int64(most)))
	m.mu.Unlock()
	time.Sleep(way)
	if !m.admit(q) {
		m.refuse(w)
		return
	}
	begin, delta, end := m.events(q)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) {
		_, _ = io.WriteString(w, text)
		w.(http.Flusher).Flush()
	}
	send(begin)
	all := int(took.Seconds() * tokensPerSecond)
	for done := 0; done < all; {
		n := min(2*tokensPerSecond, all-done)
		time.Sleep(time.Duration(n) * time.Second / tokensPerSecond)
		m.write(n)
		done += n
		send(delta(n))
	}
	send(end(all))
}

// admit counts a request that arrives now, and reports whether the limits let it in.
func (m *model) admit(q tokensAsked) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.arrived++
	if now := time.Now(); m.counts.admit(now, q) {
		if !now.Before(m.from) {
			m.counted += max(q.Max, q.sent)
		}
		return true
	}
	m.refused++
	return false
}

func (m *model) write(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.wrote(time.Now(), n)
	if !time.Now().Before(m.from) {
		m.written += n
	}
}

// A bucketOfTokens fills all the time and is empty after a minute's tokens: nothing is admitted then.
// What is written counts as it is written.
type bucketOfTokens struct {
	perMinute, level float64
	at               time.Time
}

func (b *bucketOfTokens) fill(now time.Time) {
	if !b.at.IsZero() {
		b.level = min(b.perMinute, b.level+now.Sub(b.at).Minutes()*b.perMinute)
	}
	b.at = now
}

func (b *bucketOfTokens) admit(now time.Time, _ tokensAsked) bool { b.fill(now); return b.level > 0 }
func (b *bucketOfTokens) wrote(now time.Time, n int)              { b.fill(now); b.level -= float64(n) }

// A strictMinute admits nothing while the last minute has had its tokens. What is written counts as it
// is written.
type strictMinute struct {
	n      int
	budget budget
}

func (s *strictMinute) admit(now time.Time, _ tokensAsked) bool {
	return s.budget.add(now, limit{per: time.Minute, cost: 1}) <= s.n
}
func (s *strictMinute) wrote(now time.Time, n int) {
	s.budget.add(now, limit{per: time.Minute, cost: n})
}

// A reservedMinute counts what a request reserves when it comes, in any interval of a minute.
type reservedMinute struct {
	n      int
	budget budget
}

func (s *reservedMinute) admit(now time.Time, q tokensAsked) bool {
	return s.budget.add(now, limit{per: time.Minute, cost: max(q.Max, q.sent)}) <= s.n
}
func (s *reservedMinute) wrote(time.Time, int) {}

// agents lets 100 agents, in 5 programs that share one key, ask one question after the other. It returns
// the share of the limit that was used after the first 3 minutes, and how fairly: Jain's index of the
// tokens that each agent got.
func agents(t *testing.T, m *model, ask func(store throttle.Store, base http.RoundTripper) func(context.Context) (tokens int, err error)) (used, fair float64) {
	t.Helper()
	const begin, length, programs = 3 * time.Minute, 10 * time.Minute, 5
	synctest.Test(t, func(t *testing.T) {
		m.random, m.from = rand.New(rand.NewPCG(1, 2)), time.Now().Add(begin)
		wire := newWire()
		server := &http.Server{Handler: m}
		go func() { _ = server.Serve(wire.listener(false)) }()
		store, got := memstore.New(), make([]int, 100)
		ctx, stop := context.WithCancel(t.Context())
		defer time.AfterFunc(begin+length, stop).Stop()
		var all sync.WaitGroup
		var bases []*http.Transport
		for range programs {
			base := wire.base()
			bases = append(bases, base)
			question := ask(store, base)
			for agent := range len(got) / programs {
				number := (len(bases)-1)*len(got)/programs + agent
				all.Go(func() {
					for ctx.Err() == nil {
						n, err := question(ctx)
						var refused *anthropicapi.Error
						switch {
						case err == nil || ctx.Err() != nil || errors.As(err, &refused): // the model counts refusals
						default:
							t.Errorf("agent %d: %v", number, err)
							time.Sleep(time.Second)
						}
						got[number] += n
					}
				})
			}
		}
		all.Wait()
		m.mu.Lock()
		used = float64(m.written) / (float64(m.perMinute) * length.Minutes())
		m.mu.Unlock()
		fair = stat.Jain(got)
		for _, base := range bases {
			base.CloseIdleConnections()
		}
		_ = server.Close()
		time.Sleep(2 * time.Minute)
	})
	return used, fair
}

// claude is how agents ask Claude, and read all of the stream.
func claude(perMinute int) func(throttle.Store, http.RoundTripper) func(context.Context) (int, error) {
	return func(store throttle.Store, base http.RoundTripper) func(context.Context) (int, error) {
		client := anthropicapi.NewClient(anthropicoption.WithAPIKey("key"), anthropicoption.WithMaxRetries(0),
			anthropicoption.WithHTTPClient(&http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
				MaxWait: throttle.Forever,
				Store:   store, Base: base,
				Policies: anthropic.Policies(anthropic.Options{Requests: 4000, InputTokens: 2_000_000, OutputTokens: perMinute}),
			}))}))
		question := questionForClaude
		question.MaxTokens = 8192 // far more than an answer has
		return func(ctx context.Context) (int, error) {
			stream := client.Messages.NewStreaming(ctx, question)
			defer stream.Close()
			n := 0
			for stream.Next() {
				if e := stream.Current(); e.Type == "message_delta" {
					n = int(e.Usage.OutputTokens)
				}
			}
			return n, stream.Err()
		}
	}
}

// claudeEvents are the events of Claude's streams.
func claudeEvents(tokensAsked) (begin string, delta, end func(n int) string) {
	event := func(kind, data string) string {
		return "event: " + kind + "\ndata: {\"type\":\"" + kind + "\"," + data + "}\n\n"
	}
	begin = event("message_start", `"message":{"id":"1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":10,"output_tokens":1}}`) +
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
	delta = func(n int) string {
		return event("content_block_delta", fmt.Sprintf(`"index":0,"delta":{"type":"text_delta","text":"%d"}`, n))
	}
	end = func(n int) string {
		return event("content_block_stop", `"index":0`) + event("message_delta", fmt.Sprintf(`"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}`, n)) +
			"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	}
	return begin, delta, end
}

func refuseClaude(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit for your organization of 120,000 output tokens per minute."}}`)
}

// TestAnthropicFleet: a bucket of 120,000 tokens written a minute. max_tokens is 13 times what an answer
// has, and the estimates learn that.
func TestAnthropicFleet(t *testing.T) {
	const perMinute = 120_000
	m := &model{perMinute: perMinute, counts: &bucketOfTokens{perMinute: perMinute, level: perMinute}, events: claudeEvents, refuse: refuseClaude}
	used, fair := agents(t, m, claude(perMinute))
	t.Logf("%.1f %% used, Jain %.3f, %d refused", 100*used, fair, m.refused)
	require.GreaterOrEqual(t, used, 0.95)
	require.LessOrEqual(t, used, 1.1) // a bucket that was full holds a minute more for ten; what is too much is refused
	require.GreaterOrEqual(t, fair, 0.95)
	require.Zero(t, m.refused)
}

// TestAnthropicFleetStrict: the same where no minute may have more tokens, as they are written. How many
// a stream writes in which minute is known when it is over, so a fleet that is told the whole limit is
// refused now and then. One that is told less is not.
func TestAnthropicFleetStrict(t *testing.T) {
	const perMinute = 120_000
	for _, share := range []int{100, 95, 90} {
		t.Run(fmt.Sprintf("told %d %%", share), func(t *testing.T) {
			// Who is served first differs from run to run, so what is used is the mean of a few.
			const runs = 3
			sum := 0.0
			for range runs {
				m := &model{perMinute: perMinute, counts: &strictMinute{n: perMinute}, events: claudeEvents, refuse: refuseClaude}
				used, fair := agents(t, m, claude(perMinute*share/100))
				t.Logf("%.1f %% used, Jain %.3f, %d of %d refused", 100*used, fair, m.refused, m.arrived)
				require.LessOrEqual(t, m.refused, m.arrived*max(0, share-94)/100)
				sum += used
			}
			require.GreaterOrEqual(t, sum/runs, float64(share-5)/100)
		})
	}
}

// TestOpenAIFleet: what a request reserves counts when it comes.
func TestOpenAIFleet(t *testing.T) {
	const perMinute = 120_000
	m := &model{perMinute: perMinute, counts: &reservedMinute{n: perMinute},
		events: func(tokensAsked) (begin string, delta, end func(n int) string) {
			delta = func(n int) string {
				return fmt.Sprintf("data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"%d\"}}]}\n\n", n)
			}
			end = func(n int) string {
				return fmt.Sprintf("data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":%d,\"total_tokens\":%[1]d}}\n\ndata: [DONE]\n\n", n)
			}
			return "", delta, end
		},
		refuse: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached. Please try again in 1s.","type":"tokens","code":"rate_limit_exceeded"}}`)
		}}
	_, fair := agents(t, m, func(store throttle.Store, base http.RoundTripper) func(context.Context) (int, error) {
		client := openaiapi.NewClient(openaioption.WithAPIKey("sk-key"), openaioption.WithMaxRetries(0),
			openaioption.WithHTTPClient(&http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
				MaxWait: throttle.Forever,
				Store:   store, Base: base, Policies: openai.Policies(openai.Options{Requests: 4000, Tokens: perMinute}),
			}))}))
		return func(ctx context.Context) (n int, err error) {
			stream := client.Chat.Completions.NewStreaming(ctx, openaiapi.ChatCompletionNewParams{
				Model: "gpt-4o", Messages: []openaiapi.ChatCompletionMessageParamUnion{openaiapi.UserMessage("question")},
				MaxCompletionTokens: openaiapi.Int(1200),
				StreamOptions:       openaiapi.ChatCompletionStreamOptionsParam{IncludeUsage: openaiapi.Bool(true)},
			})
			defer stream.Close()
			for stream.Next() {
				n = int(stream.Current().Usage.TotalTokens)
			}
			return n, stream.Err()
		}
	})
	used := float64(m.counted) / (perMinute * 10)
	t.Logf("%.1f %% used, Jain %.3f, %d refused", 100*used, fair, m.refused)
	require.GreaterOrEqual(t, used, 0.95)
	require.GreaterOrEqual(t, fair, 0.95)
	require.Zero(t, m.refused)
}
