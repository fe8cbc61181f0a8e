package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// A TLSServer is a server that also has a port for TLS, where clients need a
// certificate.
type TLSServer struct {
	*Server
	TLSAddr string
	Config  *tls.Config // of a client that may come in

	// CertFile and KeyFile are the certificate, which signs itself, and its key. Config has
	// both.
	CertFile, KeyFile string
}

// TLS starts a server that also listens for TLS, with a certificate that clients must have as well.
func TLS(t TB) *TLSServer {
	t.Helper()
	port, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}

	cert, key, err := certificate()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, text := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// Clients show the same certificate, and trust it.
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}

	known := x509.NewCertPool()
	known.AppendCertsFromPEM(cert)
	return &TLSServer{
		Server: Single(t, "--tls-port", fmt.Sprint(port),
			"--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-ca-cert-file", certFile),
		TLSAddr: fmt.Sprintf("127.0.0.1:%d", port),
		Config:  &tls.Config{RootCAs: known, Certificates: []tls.Certificate{pair}}, CertFile: certFile, KeyFile: keyFile,
	}
}

// certificate makes a certificate for 127.0.0.1 that signs itself, for the server
// and its clients alike, and its key.
func certificate() (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}

	now := time.Now()
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throttle"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	der, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}

	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}

	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}
