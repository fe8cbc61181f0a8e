package pgstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// Codes of errors, see https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03" // lock_timeout is over
)

// isUndone reports whether the server has undone the transaction for the sake of others, so that a further try may succeed.
func isUndone(err error) bool {
	return isCode(err, serializationFailure, deadlockDetected, lockNotAvailable)
}

// isCode reports whether err is an error of the server with one of the codes.
func isCode(err error, codes ...string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && slices.Contains(codes, refused.Code)
}

// errNotSetUp says that the tables do not have the form that this package needs.
var errNotSetUp = errors.New("the database is not set up for this program")

// wrap returns an error as a store returns it. It adds ErrAway, so that callers wait: for a server that is away or starts, or for a standby that is about to take
// over. Callers do not wait for an administrator, so errNotSetUp and refusals are without ErrAway.
func wrap(err error) error {
	if errors.Is(err, errNotSetUp) || isRefusal(err) {
		return fmt.Errorf("pgstore: %w", err)
	}
	return fmt.Errorf("pgstore: %w: %w", rowstore.ErrAway, err)
}

// isError reports whether the server has refused a statement and the session goes on, so that the statements behind it in the trip are not done. If the session
// ends, or a pooler has lost the server (class 08), nothing is known of these statements.
func isError(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(refused.Code, "08")
}

// isRefusal reports whether the server has refused something that it will refuse again: a login (class 28), a database or schema that does
// not exist (3D, 3F), a right or a statement (42).
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}

	for _, class := range []string{"28", "3D", "3F", "42"} {
		if strings.HasPrefix(refused.Code, class) {
			return true
		}
	}

	return false
}
