package main

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
)

// said is what stands before the address in what servers print.
const said = "the server is at "

// answer is the upstream's answer, as long as a short JSON of an API.
var answer = `{"data":"` + strings.Repeat("x", 500) + `"}`

// serveUpstream serves the upstream until the process is ended, and writes its certificate to a file.
func serveUpstream(certificate string) error {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	server.StartTLS()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(certificate, text, 0o600); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, said+server.Listener.Addr().String()+"/")
	select {}
}

// servePlain serves a plain reverse proxy to a host, until the process is ended.
func servePlain(host string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 100 // as the proxy has it
	base.DisableCompression = true
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: host}) },
		Transport: base,
	}

	fmt.Fprintln(os.Stderr, said+listener.Addr().String()+"/")
	return http.Serve(listener, proxy)
}
