package waitapi

import (
	_ "embed" // for openapi.yaml
	"net/http"

	"github.com/fleetthrottle/throttle/internal/problem"
)

//go:embed openapi.yaml
var description []byte

// serveDescription serves /v1/openapi.yaml.
func serveDescription(w http.ResponseWriter, _ *http.Request) *problem.Problem {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(description) // a caller that has gone needs no answer
	return nil
}
