package throttle

import (
	"net/http"

	"github.com/fleetthrottle/throttle/internal/peek"
)

// PeekBody returns the next max bytes of an answer's body, or all of a shorter one,
// and leaves the body as it was: its reader sees every byte and the same error at the
// end. It is for a [Policy.Penalty] that must look for a code in the body. Several
// policies may look at the same answer. The bytes must not be changed.
//
// A body in gzip or deflate, because the caller or its SDK has set Accept-Encoding,
// is decoded first: max counts decoded bytes. Of the body itself at most 64 KB more
// than that are read ahead, and its reader gets it as it came. Any other coding (br,
// zstd, several at once) cannot be read: then [Config.Observe] gets an [Illegible],
// once for each policy that tried.
//
// Both results are nil if there is nothing to see: in an answer without a body, in
// one that cannot be decoded, and in one that switches protocols (101), whose body is
// a connection.
//
// PeekBody waits until max bytes, the end or an error have come. All looks at one
// answer together wait for a second at most, and do not see what comes later. An
// answer that streams is held up for so long, so look only at answers that can be a
// refusal, by their status, length or type.
//
// An error while reading belongs to the body's reader, which gets it after the
// bytes that came before it. PeekBody returns it only if there are no bytes.
func PeekBody(resp *http.Response, max int64) ([]byte, error) { return peek.Body(resp, max) }
