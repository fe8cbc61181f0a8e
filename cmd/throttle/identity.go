package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// The variables that have the files of an identity if no flag names them.
const (
	authorityVariable   = "THROTTLE_TLS_CA"
	certificateVariable = "THROTTLE_TLS_CERT"
	keyVariable         = "THROTTLE_TLS_KEY"
)

// An identity is the flags that say which certificates Redis and the command show each other,
// where the address begins with rediss.
type identity struct{ authority, certificate, key string }

func (i *identity) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&i.authority, "tls-ca", "", "the certificates that sign that of Redis, in PEM, in place of the system's; or "+authorityVariable)
	f.StringVar(&i.certificate, "tls-cert", "", "the certificate that Redis is shown, in PEM; or "+certificateVariable)
	f.StringVar(&i.key, "tls-key", "", "the key of that certificate, in PEM; or "+keyVariable)
}

// config returns the settings of a connection with the certificates. Settings are nil where the
// address is one without TLS; certificates are a mistake there, unless only variables name them.
func (i *identity) config(settings *tls.Config) (*tls.Config, error) {
	if settings == nil {
		if *i != (identity{}) {
			return nil, errors.New("--tls-ca, --tls-cert, --tls-key: the address is one without TLS; one with TLS begins with rediss")
		}
		return nil, nil
	}

	settings = settings.Clone()
	if file := cmp.Or(i.authority, os.Getenv(authorityVariable)); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}

		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca: %s has no certificate in PEM", file)
		}
	}

	certificate, key := cmp.Or(i.certificate, os.Getenv(certificateVariable)), cmp.Or(i.key, os.Getenv(keyVariable))
	if certificate == "" && key == "" {
		return settings, nil
	}
	if certificate == "" || key == "" {
		return nil, errors.New("--tls-cert, --tls-key: a certificate and its key go together")
	}

	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}

	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}
