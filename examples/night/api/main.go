// Api plays the API of the night's job on this machine: parts of orders by cursors, tokens that expire, and 5,000 calls per hour.
// It speaks TLS with a certificate that it writes to cert.pem.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// perHour is the limit of the API.
const perHour = 5000

func main() {
	listen := flag.String("listen", "localhost:8443", "the `address` of the API")
	a := &api{}
	flag.IntVar(&a.orders, "orders", 250, "orders of each part")
	flag.IntVar(&a.page, "page", 75, "orders of each page")
	flag.DurationVar(&a.lasts, "token", 10*time.Second, "how long a token lasts")
	flag.Parse()
	certificate, err := selfSigned("cert.pem")
	if err != nil {
		log.Fatal(err)
	}

	server := &http.Server{Addr: *listen, Handler: a, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	go func() {
		for range time.Tick(10 * time.Second) {
			fmt.Println(a)
		}
	}()
	log.Fatal(server.ListenAndServeTLS("", ""))
}

// An api answers the calls of a job. It is safe for concurrent use.
type api struct {
	orders, page int           // how many orders a part has, and a page
	lasts        time.Duration // how long a token lasts

	mu                                sync.Mutex
	calls                             []time.Time // the calls of the last hour that were not refused
	fromGo, fromOther, refused, stale int
}

// String returns the counts.
func (a *api) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%d calls from Go, %d from Python, %d refused, %d with a token that had expired", a.fromGo, a.fromOther, a.refused, a.stale)
}

// ServeHTTP gives out tokens and pages of orders. A token is the time at which it expires, and a cursor is the number of the next order. Only calls for pages
// count.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		token := strconv.FormatInt(time.Now().Add(a.lasts).UnixMilli(), 10)
		_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "lasts": a.lasts.Seconds()})
		return
	}

	// Count the call, which may be refused, or have a token that has expired.
	status := a.count(r)
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "60")
	}
	if status != http.StatusOK {
		w.WriteHeader(status)
		return
	}

	part, from := r.FormValue("part"), 0
	if cursor := r.FormValue("cursor"); cursor != "" {
		var err error
		if from, err = strconv.Atoi(cursor); err != nil || from < 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
	}

	answer := struct {
		Orders []map[string]string `json:"orders"`
		Next   string              `json:"next"`
	}{Orders: []map[string]string{}}
	to := min(from+a.page, a.orders)
	for id := from; id < to; id++ {
		answer.Orders = append(answer.Orders, map[string]string{"id": fmt.Sprint(part, "-", id)})
	}
	if to < a.orders {
		answer.Next = strconv.Itoa(to)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// count counts a call, and returns the status of its answer. A call with a token that has expired counts towards the limit, and a refused call does not.
func (a *api) count(r *http.Request) (status int) {
	now := time.Now()
	expires, err := strconv.ParseInt(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), 10, 64)
	a.mu.Lock()
	defer a.mu.Unlock()

	// Forget the calls that are an hour old.
	for len(a.calls) > 0 && now.Sub(a.calls[0]) >= time.Hour {
		a.calls = a.calls[1:]
	}

	switch {
	case len(a.calls) >= perHour:
		a.refused++
		return http.StatusTooManyRequests
	case err != nil || now.UnixMilli() > expires:
		a.calls = append(a.calls, now)
		a.stale++
		return http.StatusUnauthorized
	}

	a.calls = append(a.calls, now)
	if strings.HasPrefix(r.UserAgent(), "Go-http-client") {
		a.fromGo++
	} else {
		a.fromOther++
	}
	return http.StatusOK
}

// selfSigned makes a certificate for localhost, and writes it to a file, so that clients can trust it. It returns the certificate with its key.
func selfSigned(name string) (c tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return c, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(name, text, 0o644)
}
