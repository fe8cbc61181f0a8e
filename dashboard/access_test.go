package dashboard

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const secret = "0123456789abcdef0123456789abcdef"

// newHandler returns the page of a source.
func newHandler(t *testing.T, c Config) *Handler {
	if c.Source == nil {
		c.Source = &fixed{}
	}
	h, err := New(c)
	require.NoError(t, err)
	return h
}

// cameIn returns a request that came in at an address of this machine.
func cameIn(at string, fields ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:7072/access", nil)
	address, _ := net.ResolveTCPAddr("tcp", at)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(address)))
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		}
		r.Header.Add(fields[i], fields[i+1])
	}
	return r
}

// TestAccess: who is on this machine may look, who has the token may act, and a proxy in between changes that.
func TestAccess(t *testing.T) {
	const here, elsewhere = "127.0.0.1:7072", "10.0.0.7:7072"
	bearer := []string{"Authorization", "Bearer " + secret}
	for name, c := range map[string]struct {
		config Config
		at     string
		fields []string
		read   bool
		act    bool
		why    string
	}{
		"here":                          {at: here, read: true},
		"here, IPv6":                    {at: "[::1]:7072", read: true},
		"elsewhere":                     {at: elsewhere, why: "not local"},
		"elsewhere, no token there is":  {at: elsewhere, fields: bearer, why: "not local"},
		"elsewhere, wrong token":        {config: Config{Token: secret}, at: elsewhere, fields: []string{"Authorization", "Bearer " + secret + "0"}, why: "not local"},
		"elsewhere, token":              {config: Config{Token: secret}, at: elsewhere, fields: bearer, read: true, act: true},
		"here, token":                   {config: Config{Token: secret}, at: here, fields: bearer, read: true, act: true},
		"here, empty token":             {at: here, fields: []string{"Authorization", "Bearer "}, read: true},
		"proxy here":                    {at: here, fields: []string{"X-Forwarded-For", "127.0.0.1"}, why: "forwarded"},
		"proxy here, other field":       {at: here, fields: []string{"Forwarded", "for=127.0.0.1"}, why: "forwarded"},
		"proxy here, token":             {config: Config{Token: secret}, at: here, fields: append([]string{"X-Forwarded-For", "9.9.9.9"}, bearer...), read: true, act: true},
		"trusted proxy, from elsewhere": {config: Config{TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "9.9.9.9"}, why: "not local"},
		"trusted proxy, a lie before":   {config: Config{TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "127.0.0.1, 9.9.9.9"}, why: "not local"},
		"trusted proxy, from here":      {config: Config{TrustProxy: true}, at: here, fields: []string{"X-Forwarded-For", "9.9.9.9, 127.0.0.1"}, read: true},
		"trusted proxy, says nothing":   {config: Config{TrustProxy: true}, at: here, fields: []string{"Via", "1.1 p"}, why: "not local"},
		"a name that leads here":        {at: here, fields: []string{"Host", "evil.example.com:7072"}, why: "other host"},
		"localhost":                     {at: here, fields: []string{"Host", "localhost:7072"}, read: true},
		"login":                         {config: Config{Login: known}, at: elsewhere, fields: []string{"X-User", "ann"}, read: true},
		"login refuses":                 {config: Config{Login: known}, at: here, why: "no login"},
		"login refuses, token":          {config: Config{Login: known, Token: secret}, at: here, fields: bearer, why: "no login"},
		"login and token":               {config: Config{Login: known, Token: secret}, at: elsewhere, fields: append([]string{"X-User", "ann"}, bearer...), read: true, act: true},
		"login alone does not act":      {config: Config{Login: known, Token: secret}, at: elsewhere, fields: []string{"X-User", "ann"}, read: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newHandler(t, c.config).guard.accessOf(cameIn(c.at, c.fields...))
			if a.Read {
				a.why = ""
			}
			require.Equal(t, c.why, a.why)
			require.Equal(t, c.read, a.Read)
			require.Equal(t, c.act, a.Act && a.Read)
		})
	}
}

// known is a login by a field.
func known(r *http.Request) (string, bool) {
	return r.Header.Get("X-User"), r.Header.Get("X-User") != ""
}

// TestToken: a token that can be guessed is refused, and a cookie proves the token until its end.
func TestToken(t *testing.T) {
	for _, weak := range []string{"secret", "0123456789abcdef0123456789abcde", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "with a space 0123456789abcdef"} {
		_, err := New(Config{Source: &fixed{}, Token: weak})
		require.Error(t, err, weak)
	}
	require.NoError(t, token("ZZHH4FIFDVPZNECYX76DAQW7G4").check())

	own := token(secret)
	proof := own.proof(time.Now().Add(time.Hour))
	require.NotContains(t, proof, secret)
	require.True(t, own.isProof(proof))
	require.False(t, token(secret[1:]+"x").isProof(proof))
	require.False(t, own.isProof(own.proof(time.Now().Add(-time.Second))))
	require.False(t, own.isProof("9"+proof))
	require.False(t, own.isProof(""))
	require.False(t, token("").isProof(token("").proof(time.Now().Add(time.Hour))))
	require.False(t, token("").is(""))
}
