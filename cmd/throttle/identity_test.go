package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// TestIdentity: a Redis whose certificate a private authority signed, and which wants one of
// its clients, is asked with flags, or with variables.
func TestIdentity(t *testing.T) {
	server := redistest.TLS(t)
	address := "rediss://:secret-52@" + server.TLSAddr
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "secret-52").Err())
	broken := filepath.Join(t.TempDir(), "broken.pem")
	require.NoError(t, os.WriteFile(broken, []byte("nonsense"), 0o600))

	ca, pair := []string{"--tls-ca", server.CertFile}, []string{"--tls-cert", server.CertFile, "--tls-key", server.KeyFile}
	for _, c := range []struct {
		address string
		flags   []string
		code    int
		says    string
	}{
		{address, append(ca, pair...), exitDone, "no program reports itself"},
		{address, pair, exitStore, "certificate signed by unknown authority"},
		{address, ca, exitStore, "certificate required"},
		{address, []string{"--tls-ca", broken}, exitUsage, "--tls-ca: " + broken + " has no certificate in PEM"},
		{address, []string{"--tls-ca", "nothing.pem"}, exitUsage, "--tls-ca: open nothing.pem: no such file"},
		{address, []string{"--tls-cert", server.CertFile}, exitUsage, "--tls-cert, --tls-key: a certificate and its key go together"},
		{server.URL(), ca, exitUsage, "the address is one without TLS; one with TLS begins with rediss"},
	} {
		code, out := throttleCommand(t, append([]string{"status", "--redis", c.address}, c.flags...)...)
		require.Equal(t, c.code, code, "%v: %s", c.flags, out)
		require.Contains(t, out, c.says)
	}

	t.Setenv(authorityVariable, server.CertFile)
	t.Setenv(certificateVariable, server.CertFile)
	t.Setenv(keyVariable, server.KeyFile)
	must(t, "status", "--redis", address)
	must(t, "status", "--redis", "redis://:secret-52@"+server.Addr)
}
