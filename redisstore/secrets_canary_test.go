package redisstore_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

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
