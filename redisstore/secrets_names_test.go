package redisstore_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// pieces are what somebody would make a name of who wants another's key, slot or
// channel.
var pieces = []string{
	"", "a", "b", ":", "::", ":7:", "2", "{", "}", "{a}", "{}:", "calls", "calls:", "wake", "wake:", "pause", ":pause",
	"flight", ":flight", "throttle", "throttle:7:", "*", "?", "[a]", " ", "\n", "\r\n", "\x00", "\xff", "\xc3\x28", "ß",
	"AAECAwQFBgcICQoLDA0ODw",
	"%", "%7B", "%25", "%3A", "nodes", ":7:nodes:", ":presence", "db1", "db1:",
}

// forged returns a name of a few pieces.
func forged(r *rand.Rand) (name string) {
	for range r.IntN(5) {
		name += pieces[r.IntN(len(pieces))]
	}
	return name
}

// printable drops what no policy's name may hold.
func printable(c rune) rune {
	if unicode.IsPrint(c) {
		return c
	}
	return -1
}

// TestP14_NamesCannotForgeKeys makes namespaces, groups, policies and keys of what
// keys and channels are made of. No two things share a name in Redis, and in a
// cluster nothing leaves its group's slot.
func TestP14_NamesCannotForgeKeys(t *testing.T) {
	t.Parallel()
	const seed = 5
	r := rand.New(rand.NewPCG(seed, seed))
	keys, channels := make(map[string]string), make(map[string]string)
	is := func(names map[string]string, name string, meaning ...any) {
		what := fmt.Sprintf("%q", meaning)
		if old, ok := names[name]; ok {
			require.Equal(t, old, what, "%q stands for both", name)
		}
		names[name] = what
	}
	var clients [3]*redis.Client // which dial nobody
	for db := range clients {
		clients[db] = redis.NewClient(&redis.Options{DB: db})
		t.Cleanup(func() { require.NoError(t, clients[db].Close()) })
	}
	many := soak.Most(20_000, 2_000)
	for range many {
		ns, group, policy := forged(r), "g"+forged(r), "p"+strings.Map(printable, forged(r))
		tagged, db := r.IntN(2) == 0, r.IntN(len(clients))
		s := redisstore.New(clients[db], redisstore.Options{Namespace: ns, HashTags: tagged})
		if s.Traits().Err != nil {
			continue // the namespace is refused: see TestWrongOptions
		}
		if ns == "" {
			ns = redisstore.DefaultNamespace
		}
		b := store.BudgetOf(policy, forged(r))
		b.Group = group
		is(keys, s.Key(b), "budget", ns, tagged, policy, b.Key)
		is(keys, s.LeasesKey(b), "flight", ns, tagged, policy, b.Key)
		is(keys, s.RecordKey(group), "record", ns, tagged, group, s.ID())
		is(keys, s.HeartbeatKey(group), "presence", ns, tagged, group)
		is(channels, s.PauseChannel(), "pauses", ns, tagged, db)
		is(channels, s.WakeChannel(), "wake", ns, tagged, db, s.ID())
		for _, name := range []string{s.Key(b), s.LeasesKey(b), s.RecordKey(group), s.HeartbeatKey(group), s.PauseChannel(), s.WakeChannel()} {
			require.Equal(t, s.Tag(), hashTag(name), "%q", name)
		}
	}
	require.Greater(t, len(keys), 2*many)
}

// TestP14_NamesCannotHoldOthers: what looks like the end of one key is a part of
// another's name.
func TestP14_NamesCannotHoldOthers(t *testing.T) {
	t.Parallel()
	in := func(namespace string) *redisstore.Store {
		return redisstore.New(&redis.Client{}, redisstore.Options{Namespace: namespace})
	}
	require.Equal(t, "a:7:nodes:api.example.com:presence", in("a").HeartbeatKey("api.example.com"))
	require.NotEqual(t, in("a").HeartbeatKey("x:7:nodes:y"), in("a:7:nodes:x").HeartbeatKey("y"))
	require.NotEqual(t, in("{").HeartbeatKey("y"), in("%7B").HeartbeatKey("y"))
	s := in("a")
	require.True(t, strings.HasSuffix(s.RecordKey("x:7:calls:y"), s.ID()+":x%3A7%3Acalls%3Ay"))
}

// hashTag is what a cluster takes the slot of.
func hashTag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return ""
}

// listening has a store wait for a start, so that it listens, and returns the
// watch and what it tells.
func listening(t *testing.T, s *redisstore.Store, c store.Charge) (store.Watch, chan struct{}) {
	t.Helper()
	require.Zero(t, book(t, s, c))
	b := booking(c)
	g := ask(t, s, b)
	require.Positive(t, g.Wait)
	news := make(chan struct{}, 1)
	w := s.Watch(b, g, news)
	t.Cleanup(func() {
		w.Stop()
		s.Cancel(b, g)
	})
	require.Eventually(t, func() bool {
		ok, err := w.Confirm(t.Context(), -1)
		return err == nil && ok && s.Complete(time.Now())
	}, 30*time.Second, time.Millisecond)
	return w, news
}

// TestForgedMessages says on a store's channels what no script says. Whoever can
// do that can stall a budget for as long as the longest penalty: nobody panics,
// and no longer.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	s := redisstore.New(client, redisstore.Options{Namespace: server.Namespace})
	waits, idle := charge("waits", store.PerMinute(1)), charge("idle", store.PerMinute(1))
	listening(t, s, waits)

	key := s.Key(waits.Budget)
	long := strings.Repeat("9", 400)
	for _, text := range []string{
		"", " ", "  ", "~", "~x", "~-1", "~" + long, "~9223372036854775807", "-1 -1 " + key, "0 0", "1", "1 2", "x y " + key,
		long + " " + long + " " + key, "9223372036854775807 9223372036854775807 ", "-9223372036854775808 -9223372036854775808 " + key,
		"anew ", "anew 1 2", "anew -1 9223372036854775807 " + key, "anew " + long + " " + long + " " + key, strings.Repeat(",", 1<<16) + " " + key, strings.Repeat("1,", 1<<16) + " " + s.LeasesKey(waits.Budget),
		"\x00\xff", strings.Repeat("x", 1<<20),
	} {
		for _, channel := range []string{s.PauseChannel(), s.WakeChannel()} {
			require.NoError(t, client.Publish(t.Context(), channel, text).Err())
		}
	}
	// The worst: a century for a budget that Redis knows nothing of.
	century := int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	forged := fmt.Sprintf("%d %d %s", time.Now().UnixMicro()+century, century, s.Key(idle.Budget))
	require.NoError(t, client.Publish(t.Context(), s.PauseChannel(), forged).Err())
	require.Eventually(t, func() bool { return s.Closed(s.Key(idle.Budget)) > 0 }, 30*time.Second, time.Millisecond)
	require.LessOrEqual(t, s.Closed(s.Key(idle.Budget)), store.MaxPenalty)
	g := ask(t, s, booking(idle))
	require.LessOrEqual(t, g.Wait, store.MaxPenalty)
	require.True(t, g.Paused)
	s.Cancel(booking(idle), g)
}

// TestDatabasesAreApart pauses budgets in one database of a server. They are not
// closed in another, where nobody may take that for news of its own.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	here, there := redistest.Shared(t), redistest.Shared(t)
	require.Equal(t, here.Addr, there.Addr)
	s, neighbour := redisstore.New(here.Client(t), redisstore.Options{}), redisstore.New(here.Client(t), redisstore.Options{})
	other := redisstore.New(there.Client(t), redisstore.Options{})
	waits, idle, last := charge("waits", store.PerMinute(1)), charge("idle", store.PerMinute(1)), charge("last", store.PerMinute(1))
	_, news := listening(t, s, waits)
	require.NoError(t, other.Pause(t.Context(), idle, time.Hour))
	require.NoError(t, other.Pause(t.Context(), waits, time.Hour))

	require.NoError(t, neighbour.Pause(t.Context(), last, time.Hour))
	require.Eventually(t, func() bool { return s.Closed(s.Key(last.Budget)) > 0 }, 30*time.Second, time.Millisecond,
		"it is heard after all that was said before")
	require.Empty(t, news)
	require.Negative(t, s.Closed(s.Key(idle.Budget)))
	require.Negative(t, s.Closed(s.Key(waits.Budget)))
	require.Zero(t, book(t, s, idle))
}

// The canaries: each stands where programs keep secrets, and none may be heard
// anywhere else. They hold what spells differently in a URL.
const (
	canaryUser     = "us3r+of/c4nary"
	canaryInfo     = "pa55+of/c4nary"
	canaryPath     = "h00k+in/c4nary"
	canaryQuery    = "t0ken+in/c4nary"
	canaryHeader   = "b3arer+in/c4nary"
	canaryCookie   = "c00kie+in/c4nary"
	canaryBody     = "b0dy+sent/c4nary"
	canaryAnswer   = "an5wer+got/c4nary"
	canaryKey      = "k3y+of+a/c4nary"
	canaryLimiter  = "l1miter+key/c4nary"
	canaryOption   = "0ption+of/c4nary"
	canaryPassword = "r3dis+pass/c4nary"
	canaryWrong    = "wr0ng+pass/c4nary"
	canaryPanic    = "pan1c+of/c4nary"

	// What the program itself said, and hears again: errors of its own.
	canaryCause = "c4use+of/c4nary"
	canaryBase  = "ba5e+error/c4nary"
)

var (
	theirSecrets = []string{
		canaryUser, canaryInfo, canaryPath, canaryQuery, canaryHeader, canaryCookie, canaryBody, canaryAnswer,
		canaryKey, canaryLimiter, canaryOption, canaryPassword, canaryWrong, canaryPanic,
	}
	ownSecrets = []string{canaryCause, canaryBase}
)

// spellings returns a secret as it is, encoded, and hashed without anything else.
func spellings(secret string) []string {
	raw := []byte(secret)
	hexed := hex.EncodeToString(raw)
	decimal := fmt.Sprint(raw)
	all := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), hexed, strings.ToUpper(hexed),
		decimal[1 : len(decimal)-1], strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", raw), "[]byte{"), "}"),
	}
	for shift := range 3 {
		// In the middle of a longer text base64 may begin anywhere in a letter
		// of three.
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, shift), raw...))
			all = append(all, text[4:len(text)-4])
		}
	}
	m5, s1, s256 := md5.Sum(raw), sha1.Sum(raw), sha256.Sum256(raw)
	for _, sum := range [][]byte{m5[:], s1[:], s256[:]} {
		all = append(all, hex.EncodeToString(sum[:8]), string(sum[:8]),
			base64.StdEncoding.EncodeToString(sum[:9]), base64.URLEncoding.EncodeToString(sum[:9]))
	}
	return all
}

// requireNoCanary fails if a text holds a secret in any spelling. It does not
// print the text, which is long.
func requireNoCanary(t *testing.T, where, text string, secrets ...[]string) {
	t.Helper()
	require.NotEmpty(t, text, "%s: nothing was heard at all", where)
	for _, list := range secrets {
		for _, secret := range list {
			for _, spelling := range spellings(secret) {
				if i := strings.Index(text, spelling); i >= 0 {
					require.Failf(t, "a canary was heard", "%s: %q in %q", where, secret,
						text[max(0, i-200):min(len(text), i+200)])
				}
			}
		}
	}
}

// A witness keeps all that it sees, in every way that a program prints it.
type witness struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *witness) see(values ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range values {
		fmt.Fprintf(&w.text, "%v\n%+v\n%#v\n%q\n", v, v, v, fmt.Sprint(v))
		if b, err := json.Marshal(v); err == nil {
			w.text.Write(b)
		}
		if err, ok := v.(error); ok {
			for err = errors.Unwrap(err); err != nil; err = errors.Unwrap(err) {
				fmt.Fprintf(&w.text, "%v\n%+v\n%#v\n", err, err, err)
			}
		}
	}
}

func (w *witness) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestCanariesAreHeard proves that the ear for canaries is not deaf.
func TestCanariesAreHeard(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte(canaryKey))
	for _, text := range []string{
		"x" + canaryKey + "y", url.QueryEscape("a " + canaryKey), fmt.Sprintf("%x", "ab"+canaryKey), fmt.Sprintf("%X", canaryKey),
		fmt.Sprint([]byte("z" + canaryKey)), fmt.Sprintf("%#v", []byte("z"+canaryKey)),
		base64.StdEncoding.EncodeToString([]byte("ab" + canaryKey + "c")), base64.URLEncoding.EncodeToString([]byte("a" + canaryKey)),
		hex.EncodeToString(sum[:]), string(sum[:16]), base64.RawURLEncoding.EncodeToString(sum[:16]),
	} {
		heard := false
		for _, spelling := range spellings(canaryKey) {
			heard = heard || strings.Contains(text, spelling)
		}
		require.True(t, heard, "%q", text)
	}
}

// A wiretap hears all that a server is sent: the commands, as MONITOR tells them,
// with keys, values and scripts; and what is published.
type wiretap struct {
	client   *redis.Client
	commands chan string // all of them, at the end
	messages chan string
}

// lastWord ends both.
const lastWord = "the-last-word-of-the-sweep"

// listenIn needs the server's password, because it asks for what only an
// operator may hear.
func listenIn(t *testing.T, server *redistest.Server, password string) *wiretap {
	t.Helper()
	o := server.Options()
	o.Password = password
	client := clientOf(t, o)
	require.NoError(t, client.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
	require.NoError(t, client.ConfigSet(t.Context(), "slowlog-max-len", "100000").Err())
	return &wiretap{
		client:   client,
		commands: hearRaw(t, server.Addr, password, "MONITOR"),
		messages: hearRaw(t, server.Addr, password, "PSUBSCRIBE *"),
	}
}

// hearRaw returns all that a connection gets after a command, up to the last word.
func hearRaw(t *testing.T, addr, password, command string) chan string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
	fmt.Fprintf(conn, "AUTH %s\r\n", password)
	answer := make([]byte, len("+OK\r\n"))
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", string(answer))
	fmt.Fprintf(conn, "%s\r\n", command)
	answer = make([]byte, 5) // the command has begun
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)

	all := make(chan string, 1)
	go func() {
		var heard bytes.Buffer
		buf := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buf)
			heard.Write(buf[:n])
			if err != nil || bytes.Contains(heard.Bytes(), []byte(lastWord)) {
				all <- heard.String()
				return
			}
		}
	}()
	return all
}

// stop returns what was heard, by where it was heard.
func (w *wiretap) stop(t *testing.T) map[string]string {
	t.Helper()
	ctx := t.Context()
	heard := map[string]string{
		"CLIENT LIST": w.client.ClientList(ctx).Val(),
		"INFO":        w.client.Info(ctx, "everything").Val(),
		"keys":        w.everyKey(t),
	}
	slow, err := w.client.SlowLogGet(ctx, -1).Result()
	require.NoError(t, err)
	heard["SLOWLOG"] = fmt.Sprintf("%+v", slow)
	require.NoError(t, w.client.Publish(ctx, lastWord, lastWord).Err())
	heard["MONITOR"], heard["messages"] = <-w.commands, <-w.messages
	return heard
}

// everyKey returns all keys with all values, as they are and as they are dumped.
func (w *wiretap) everyKey(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, key := range keys(t, w.client) {
		value, err := w.client.Get(t.Context(), key).Result()
		if errors.Is(err, redis.Nil) {
			continue // it has expired
		}
		require.NoError(t, err, key)
		dump, err := w.client.Dump(t.Context(), key).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err, key)
		}
		fmt.Fprintf(&all, "%s\n%s\n%q\n%s\n", key, value, value, dump)
	}
	return all.String()
}

// TestWrongOptions: a store that was made of what cannot be meant is refused before the first request, with all mistakes.
func TestWrongOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	var none *redis.Client
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		o      redisstore.Options
		wrong  []string // the options. There are none if nothing is wrong.
	}{
		{"nothing", client, redisstore.Options{}, nil},
		{"all that is right", client, redisstore.Options{Namespace: "a b:{c}%ü", HashTags: true, Outage: redisstore.OutageFailOpen}, nil},
		{"no client", nil, redisstore.Options{}, []string{"client"}},
		{"a client that was not made", none, redisstore.Options{}, []string{"client"}},
		{"an unknown outage", client, redisstore.Options{Outage: redisstore.OutageFailOpen + 1}, []string{"Options.Outage"}},
		{"a line's end in the namespace", client, redisstore.Options{Namespace: "shop\n"}, []string{"Options.Namespace"}},
		{"a blank before the namespace", client, redisstore.Options{Namespace: " shop"}, []string{"Options.Namespace"}},
		{"a namespace of blanks", client, redisstore.Options{Namespace: "  "}, []string{"Options.Namespace"}},
		{"a namespace that is no text", client, redisstore.Options{Namespace: "\xff"}, []string{"Options.Namespace"}},
		{"everything", nil, redisstore.Options{Namespace: "\x00", Outage: 99}, []string{"client", "Options.Namespace", "Options.Outage"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redisstore.New(c.client, c.o)
			p := throttle.Policy{Name: "p", Match: "api.example.com/", Limit: throttle.PerSecond(1)}
			config := throttle.Config{Store: s, Policies: []throttle.Policy{p}}
			_, transport := throttle.New(config)
			_, limiters := throttle.NewLimiters(config)
			_, limiter := throttle.NewLimiter(s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)})

			for _, err := range []error{transport, limiters, limiter} {
				if len(c.wrong) == 0 {
					require.NoError(t, err)
					continue
				}
				var mistake *store.OptionError
				require.ErrorAs(t, err, &mistake)
				require.Equal(t, "redisstore", mistake.Package)
				for _, option := range c.wrong {
					require.ErrorContains(t, err, "redisstore: "+option+": ")
				}
				require.Equal(t, len(c.wrong), strings.Count(err.Error(), "redisstore: "), "%v", err)
			}
		})
	}
}

// TestWrongOptionsOfAStoreInUse: without a constructor of throttle each call says what is wrong, and none panics.
func TestWrongOptionsOfAStoreInUse(t *testing.T) {
	s, ctx := redisstore.New(nil, redisstore.Options{}), context.Background()
	c := store.Charge{Budget: store.Budget{Policy: "p"}, Limit: store.PerSecond(1), Cost: 1}
	b := &store.Booking{Charges: []store.Charge{c}}
	g, book := s.Book(ctx, b)
	require.Equal(t, store.Grant{HeldBy: store.NotHeld}, g)
	_, _, refuse := s.Refuse(ctx, c, store.Refusal{Length: time.Second})
	_, status := s.Status(ctx, c)
	_, appoint := s.Appoint(ctx, c, time.Second, false)
	_, _, setUsed := s.SetUsed(ctx, c, 1)
	w := s.Watch(b, g, nil)
	_, confirm := w.Confirm(ctx, time.Second)
	w.Stop()
	s.Cancel(b, g)
	s.Release(b, g)
	s.OnPause(func() {})
	for _, err := range []error{
		book, refuse, status, appoint, setUsed, confirm,
		s.Settle(ctx, b, g, []int{1}), s.Pause(ctx, c, time.Second), s.Resume(ctx, c), s.Reconcile(ctx, c, store.Quota{}),
	} {
		require.ErrorAs(t, err, new(*store.OptionError))
	}
}
