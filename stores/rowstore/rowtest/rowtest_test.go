package rowtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/stores/rowstore"
	"github.com/fleetthrottle/throttle/stores/rowstore/rowtest"
)

// A mistake is one that the author of a Database can make.
type mistake string

const (
	repeats           mistake = "makes a transaction again though its reply was lost"
	ignoresContext    mistake = "ignores ctx"
	returnsEarly      mistake = "returns before do"
	keepsPuts         mistake = "keeps what a refused call of do has put"
	takesLaterVersion mistake = "compares the version of a later Get"
	saysNothingOfAway mistake = "does not wrap ErrAway"
)

// TestService: a Database of a service passes. With a mistake, which TestMistakes sets, it does not.
func TestService(t *testing.T) {
	soak.WithoutRace(t)
	address, open := newService(t)
	wrong := func(t *testing.T, address string) rowstore.Database {
		db := open(t, address)
		db.(*client).mistake = mistake(os.Getenv("ROWTEST_MISTAKE"))
		return db
	}
	rowtest.Connection(t, address, wrong)
	rowtest.Transactions(t, func(t *testing.T) rowstore.Database { return wrong(t, address) }, rowstore.Options{})
}

// TestMistakes: each mistake turns a check red, which says what to mend. Tests of tests run in a process of their own.
func TestMistakes(t *testing.T) {
	soak.WithoutRace(t)
	for mistake, c := range map[mistake]struct{ check, says string }{
		repeats:           {"connection/lost_replies", "neither Transact nor the client library may repeat it"},
		ignoresContext:    {"transactions/waits", "look at ctx before each call of do"},
		returnsEarly:      {"transactions/returns", "Transact has to wait for do"},
		keepsPuts:         {"transactions/overtaken", "Begin each call of do with a new Tx"},
		takesLaterVersion: {"transactions/overtaken", "a later Get must not replace it"},
		saysNothingOfAway: {"connection/refused", "does not wrap rowstore.ErrAway"},
	} {
		t.Run(string(mistake), func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestService$/^"+strings.ReplaceAll(c.check, "/", "$/^")+"$")
			run.Env = append(os.Environ(), "ROWTEST_MISTAKE="+string(mistake))
			out, err := run.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.says) || strings.Contains(string(out), "panic") {
				t.Errorf("%v, and not a failure that says %q:\n%s", err, c.says, out)
			}
		})
	}
}
