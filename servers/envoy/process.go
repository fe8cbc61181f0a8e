package envoy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/envoy/internal/inbound"
	"github.com/fleetthrottle/throttle/store"
)

// How long a conversation waits for Envoy, or keeps Envoy waiting.
const (
	headersTime = 10 * time.Second       // for the first message of a stream
	bodyTime    = time.Minute            // for the body of a request, while nothing is booked
	learnTime   = 100 * time.Millisecond // for the store to hear of an answer: message_timeout is 200 ms by default
)

// Process serves a stream of external processing: the life of one request. In the order of the code: the headers come,
// the body comes if a policy reads it, the transport holds the request, its base answers Envoy and waits for the answer
// of the upstream, the policies read the answer, and the end of the answer gives the slots back.
//
// Before the start an error of the stream fails the request. After the start the stream ends without an error, whatever
// happens, so that the caller of Envoy gets the answer of the upstream.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	s.counts.streams.Add(1)
	defer s.counts.streams.Add(-1)

	c := newConversation(stream, s.cut)
	defer c.cancel(nil)

	req, p := s.readRequest(c)
	if p == nil {
		p = s.exchange(c, req)
	}

	switch {
	case c.started || p == nil:
		return nil
	case stream.Context().Err() != nil || errors.Is(context.Cause(c.ctx), errGone):
		s.counts.left.Add(1)
		return status.Error(codes.Canceled, "the caller has left")
	}

	s.counts.refused[p.reason].Add(1)
	if p.code != codes.OK {
		return status.Error(p.code, p.Detail)
	}

	return c.refuse(p)
}

// readRequest returns the request of a stream, with its body if a policy reads the body, or if the filter sends it anyway. It
// returns a refusal if Envoy is silent, leaves, or breaks the order, if the filter does not fit, and for a malformed request.
func (s *Server) readRequest(c *conversation) (*http.Request, *refusal) {
	timer := time.AfterFunc(headersTime, func() { c.cancel(errSilent) })
	first, err := c.next()
	timer.Stop()
	if err != nil {
		return nil, refusalOf(err)
	}

	head := first.GetRequestHeaders()
	if head == nil {
		return nil, outOfOrder("the first message of a stream has the headers of the request: leave request_header_mode of the filter as it is")
	}
	if p := s.fits(first); p != nil {
		return nil, p
	}

	req, p := requestOf(c.ctx, head)
	if p != nil {
		return nil, p
	}

	c.isGRPC = isGRPC(req.Header)
	c.bodyMode = first.GetProtocolConfig().GetRequestBodyMode()
	c.answerMode = first.GetProtocolConfig().GetResponseBodyMode()
	s.look(c, req, head.GetEndOfStream())
	if !c.wantsBody {
		return req, nil
	}

	return s.readBody(c, req)
}

// look sets what the policies of a request need: the body of the request, the body of its answer, or the end of the
// answer. bodiless means that no body of the request is still to come.
func (s *Server) look(c *conversation, req *http.Request, bodiless bool) {
	probe := *req
	if !bodiless {
		// BUFFERED sends the body anyway. A policy that reads the body to make a key or a cost asks GetBody for a copy.
		c.wantsBody = c.bodyMode == filterv3.ProcessingMode_BUFFERED
		probe.GetBody = func() (io.ReadCloser, error) {
			c.wantsBody = true
			return http.NoBody, nil
		}
	}

	charges := s.c.Transport.Explain(&probe)
	if len(charges) == 0 {
		return
	}

	// A meter reads the body of the answer, and a slot is given back at its end.
	metered := make(map[string]bool)
	for _, p := range s.c.Transport.Policies() {
		metered[p.Name] = p.Meter != nil
	}

	for _, charge := range charges {
		c.wantsEnd = c.wantsEnd || charge.Limit.Kind() == store.KindConcurrency
		c.wantsAnswer = c.wantsAnswer || metered[charge.Budget.Policy]
	}
}

// readBody asks Envoy for the whole body of a request, and adds the body to the request. If the body does not come in
// bodyTime, or a different message comes, it returns a refusal.
func (s *Server) readBody(c *conversation, req *http.Request) (*http.Request, *refusal) {
	if c.bodyMode != filterv3.ProcessingMode_BUFFERED {
		c.bodyMode, c.override = filterv3.ProcessingMode_BUFFERED, true
	}

	timer := time.AfterFunc(bodyTime, func() { c.cancel(errSilent) })
	defer timer.Stop()

	m, err := c.next()
	if err != nil {
		return nil, refusalOf(err)
	}

	// Trailers in place of a body mean an empty body. With any other message Envoy has sent the request on without its
	// body, and nothing can hold the request any more.
	if m.GetRequestBody() == nil && m.GetRequestTrailers() == nil {
		s.tellUnfit("a policy reads bodies of requests, and the filter did not send one: set allow_mode_override to true, or request_body_mode to BUFFERED; the request was not held")
		c.started = true
		return nil, outOfOrder("the body of the request did not come")
	}

	// With the body the policies can make their keys and costs, so look again.
	addBody(req, m.GetRequestBody().GetBody())
	s.look(c, req, true)
	return req, nil
}

// exchange holds a request until its start, sends it by its base, and reads its answer as far as the policies need. It
// returns nil if there was an answer.
func (s *Server) exchange(c *conversation, req *http.Request) *refusal {
	ctx, place, err := s.queue.Enter(context.WithValue(c.ctx, conversationKey{}, c))
	if err != nil {
		return refusalOf(err)
	}
	defer place.Leave()
	c.place = place
	ctx = throttle.WithMaxWait(ctx, inbound.MaxWait(req.Header, s.c.MaxWait))
	ctx = throttle.WithPriority(ctx, inbound.Priority(req.Header))

	resp, err := s.c.Transport.RoundTrip(req.WithContext(ctx))
	if err == nil {
		c.finish(resp)
		if c.answer != nil && c.answer.err == errBodiless {
			s.tellUnfit("a policy reads bodies of answers, and the filter did not send one: set allow_mode_override to true, or response_body_mode to STREAMED")
		}
		return nil
	}

	if c.illegible != "" {
		s.tellUnfit(c.illegible)
	}
	if refused, ok := queueRefusal(ctx, err); ok {
		return refusalOf(refused)
	}

	return refusalOf(err)
}

// A conversation is a stream of external processing: Envoy sends a message, and holds the request or its answer until
// the server has replied.
type conversation struct {
	stream    extprocv3.ExternalProcessor_ProcessServer
	ctx       context.Context         // ends when Envoy ends the stream, or with a refusal
	cancel    context.CancelCauseFunc // of ctx
	cut       context.Context         // ends when the server ends the stream
	received  chan *extprocv3.ProcessingRequest
	place     *inbound.Place
	isGRPC    bool   // the request is a gRPC call
	started   bool   // Envoy may have sent the request to the upstream
	illegible string // why the answer of the upstream cannot be read, or ""

	answer *answerBody // of an answer with a body, or nil
	haste  *time.Timer // replies when the policies take too long over an answer

	// What the policies need.
	wantsBody   bool // the body of the request, also if the filter sends it anyway
	wantsAnswer bool // the body of the answer
	wantsEnd    bool // the end of the answer

	mu                   sync.Mutex                           // of the fields below, and of stream.Send
	pending              *extprocv3.ProcessingRequest         // message whose reply Envoy awaits, or nil
	override             bool                                 // replies to headers set the modes
	bodyMode, answerMode filterv3.ProcessingMode_BodySendMode // how bodies of the request and of the answer come
}

// conversationKey is the context key of a *conversation.
type conversationKey struct{}

// Errors that end a conversation.
var (
	errGone   = errors.New("the stream has ended")
	errSilent = errors.New("the message came too late")
	errCut    = errors.New("the server ends")
	errOrder  = errors.New("the message is out of order")
	errForm   = errors.New("the message is empty")

	errBodiless = errors.New("the body of the answer did not come")
)

// newConversation begins to receive the messages of a stream.
func newConversation(stream extprocv3.ExternalProcessor_ProcessServer, cut context.Context) *conversation {
	c := &conversation{stream: stream, cut: cut, received: make(chan *extprocv3.ProcessingRequest)}
	c.ctx, c.cancel = context.WithCancelCause(stream.Context())
	go c.receive()
	return c
}

// receive passes messages on until the stream ends, which ends the context of the conversation. A goroutine of its own
// notices the end while the request waits.
func (c *conversation) receive() {
	for {
		m, err := c.stream.Recv()
		if err != nil {
			c.cancel(errGone)
			return
		}

		select {
		case c.received <- m:
		case <-c.ctx.Done():
			return
		}
	}
}

// next replies to the message before, and returns the next message, or why none comes.
func (c *conversation) next() (*extprocv3.ProcessingRequest, error) {
	if err := c.reply(); err != nil {
		return nil, err
	}

	select {
	case m := <-c.received:
		if m.GetRequest() == nil {
			return nil, errForm
		}
		c.mu.Lock()
		c.pending = m
		c.mu.Unlock()
		return m, nil

	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	case <-c.cut.Done():
		return nil, errCut
	}
}

// reply lets Envoy go on with the message that it waits on. Without such a message it does nothing.
func (c *conversation) reply() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	m := c.pending
	if m == nil {
		return nil
	}
	c.pending = nil

	reply := new(extprocv3.ProcessingResponse)
	switch m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		reply.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: goOnWithHeaders}
		c.addOverride(reply)
	case *extprocv3.ProcessingRequest_RequestBody:
		reply.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: goOnWithBody}
	case *extprocv3.ProcessingRequest_RequestTrailers:
		reply.Response = &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: goOnWithTrailers}
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		reply.Response = &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: goOnWithHeaders}
		c.addOverride(reply)
	case *extprocv3.ProcessingRequest_ResponseBody:
		reply.Response = &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: goOnWithBody}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		reply.Response = &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: goOnWithTrailers}
	}

	return c.stream.Send(reply)
}

// The parts of replies that change nothing.
var (
	goOnWithHeaders  = &extprocv3.HeadersResponse{Response: new(extprocv3.CommonResponse)}
	goOnWithBody     = &extprocv3.BodyResponse{Response: new(extprocv3.CommonResponse)}
	goOnWithTrailers = new(extprocv3.TrailersResponse)
)

// addOverride sets the modes for a request whose policies need more than the filter sends. Body modes are always
// explicit: without them Envoy would take NONE. Trailers of the answer are asked for so that Envoy keeps the stream until
// the end of the answer: since 1.37 it closes a stream that needs no further message. The mutex is held.
func (c *conversation) addOverride(reply *extprocv3.ProcessingResponse) {
	if !c.override {
		return
	}

	reply.ModeOverride = &filterv3.ProcessingMode{
		RequestBodyMode: c.bodyMode, ResponseBodyMode: c.answerMode, ResponseTrailerMode: filterv3.ProcessingMode_SEND,
	}
	if c.bodyMode == filterv3.ProcessingMode_BUFFERED {
		reply.ModeOverride.RequestTrailerMode = filterv3.ProcessingMode_SEND
	}
}

// response returns the answer of the upstream, whose body comes from Envoy when it is read. Envoy waits while the policies
// look at the answer, but no longer than learnTime. It returns an error for an answer without a status.
func (c *conversation) response(req *http.Request, head *extprocv3.HttpHeaders) (*http.Response, error) {
	resp, err := responseOf(req, head)
	if err != nil {
		return nil, err
	}

	resp.Body = http.NoBody
	if !head.GetEndOfStream() {
		c.answer = &answerBody{c: c}
		resp.Body = c.answer
		c.askFor(c.wantsAnswer, c.wantsEnd)
	}

	c.haste = time.AfterFunc(learnTime, func() { _ = c.reply() })
	return resp, nil
}

// askFor notes that the next reply to headers must ask for the body of the answer, or for a message at its end.
func (c *conversation) askFor(body, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if body && c.answerMode == filterv3.ProcessingMode_NONE {
		c.answerMode = filterv3.ProcessingMode_STREAMED
	}
	c.override = c.override || body || end
}

// finish lets Envoy go on with an answer that the policies have seen, and waits for its end if the policies need the end
// or the body.
func (c *conversation) finish(resp *http.Response) {
	defer resp.Body.Close()
	switch {
	case c.answer == nil: // the answer has no body
	case c.wantsAnswer || c.answer.asked.Load():
		_, _ = io.Copy(io.Discard, resp.Body)
	case c.wantsEnd:
		// The stream ends with the answer.
		for {
			if _, err := c.next(); err != nil {
				break
			}
		}
	}

	if c.haste != nil {
		c.haste.Stop()
	}
	_ = c.reply()
}

// An answerBody is the body of an answer. Envoy is asked for it by the first read, because most policies need only the
// headers. A chunk is confirmed when the next is read, so that Envoy keeps the chunk while a policy looks at it.
type answerBody struct {
	c     *conversation
	asked atomic.Bool // a read has asked for the body
	came  bool        // a part of the body, or its end, has come
	rest  []byte      // part of the last chunk that was not read yet
	err   error       // ends the body after rest
}

// Read implements [io.Reader].
func (b *answerBody) Read(p []byte) (int, error) {
	wasAsked := b.asked.Swap(true)
	if !wasAsked {
		b.c.askFor(true, true)
	}

	for len(b.rest) == 0 && b.err == nil {
		b.receive()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}

	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// receive receives the next chunk, or the error that ends the body.
func (b *answerBody) receive() {
	m, err := b.c.next()
	chunk := m.GetResponseBody()
	switch {
	case err != nil && err != errCut && !b.came: // Envoy has ended the stream without the body
		b.err = errBodiless
	case err != nil:
		b.err = io.ErrUnexpectedEOF
	case chunk != nil:
		b.came, b.rest = true, chunk.GetBody()
		if chunk.GetEndOfStream() {
			b.err = io.EOF
		}

	case m.GetResponseTrailers() != nil:
		b.came, b.err = true, io.EOF
	case m.GetRequestBody() != nil, m.GetRequestTrailers() != nil: // the caller still sends while it gets its answer
	default:
		b.err = errOrder
	}
}

// Close implements [io.Closer].
func (b *answerBody) Close() error { return nil }

// A base is what NewBase returns.
type base struct{}

// NewBase returns a base for the [throttle.Transport] of a [Server]. It sends a request by letting Envoy go on with the
// request, and returns the answer that Envoy got. It fails for requests that do not come from Envoy.
func NewBase() http.RoundTripper { return new(base) }

// RoundTrip implements [http.RoundTripper]: see [NewBase]. After an error before the start Envoy still holds the request.
func (*base) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}

	c, ok := req.Context().Value(conversationKey{}).(*conversation)
	if !ok {
		return nil, errors.New("envoy: this transport is for requests of Envoy: use Server")
	}

	// GotConn has the transport check the age of the start here, as late as the protocol allows.
	trace := httptrace.ContextClientTrace(req.Context())
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Reused: true})
	}
	if err := req.Context().Err(); err != nil {
		return nil, context.Cause(req.Context())
	}

	if err := c.place.Start(); err != nil {
		return nil, err
	}
	c.started = true
	err := c.reply()
	if err == nil && trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}

	for err == nil {
		var m *extprocv3.ProcessingRequest
		if m, err = c.next(); err != nil {
			break
		}

		switch r := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			return c.response(req, r.ResponseHeaders)
		case *extprocv3.ProcessingRequest_RequestBody, *extprocv3.ProcessingRequest_RequestTrailers: // the rest of the request
		default:
			c.illegible = "the filter sends no headers of answers, so policies learn nothing: leave response_header_mode as it is"
			err = errOrder
		}
	}

	return nil, err
}

// fits returns the refusal of a filter whose configuration keeps the server from holding requests or from reading answers,
// and reports why to [Config.Unfit], or returns nil.
func (s *Server) fits(first *extprocv3.ProcessingRequest) *refusal {
	var detail string
	switch mode := first.GetProtocolConfig(); {
	case first.GetObservabilityMode():
		detail = "the filter only shows requests, so nothing holds them: set observability_mode to false"
	case mode.GetRequestBodyMode() != filterv3.ProcessingMode_NONE && mode.GetRequestBodyMode() != filterv3.ProcessingMode_BUFFERED:
		detail = "the filter sends bodies of requests in pieces: set request_body_mode to NONE or BUFFERED"
	case mode.GetResponseBodyMode() > filterv3.ProcessingMode_BUFFERED_PARTIAL:
		detail = "the filter wants bodies of answers back: set response_body_mode to NONE or STREAMED"
	default:
		return nil
	}

	s.tellUnfit(detail)
	return outOfOrder(detail)
}

// fields reads the header fields of a message. Fields whose name begins with a colon are in pseudo, under their names.
// again is the name of a pseudo field that the message has twice, or "".
func fields(all *corev3.HeaderMap) (header http.Header, pseudo map[string]string, again string) {
	header, pseudo = make(http.Header, len(all.GetHeaders())), make(map[string]string, 4)
	for _, f := range all.GetHeaders() {
		// Envoy sends raw values since 1.27, and plain values before.
		name, value := f.GetKey(), cmp.Or(string(f.GetRawValue()), f.GetValue())
		if !strings.HasPrefix(name, ":") {
			header.Add(name, value)
			continue
		}
		if _, twice := pseudo[name]; twice {
			again = name
		}
		pseudo[name] = value
	}

	return header, pseudo, again
}

// requestOf returns the request that policies match, without its body, or a refusal if no policy could match it.
func requestOf(ctx context.Context, head *extprocv3.HttpHeaders) (*http.Request, *refusal) {
	header, pseudo, again := fields(head.GetHeaders())
	method, host, path := pseudo[":method"], cmp.Or(pseudo[":authority"], header.Get("Host")), pseudo[":path"]
	hasTarget := method == http.MethodConnect || path == "*" || strings.HasPrefix(path, "/")
	switch {
	case again != "":
		return nil, illegible("the request has " + again + " twice")
	case method == "":
		return nil, illegible("the request has no :method")
	case host == "":
		return nil, illegible("the request has no :authority")
	case !hasTarget:
		return nil, illegible("the :path of the request is not a path")
	}

	target := new(url.URL)
	if path != "" {
		var err error

		// A path that policies could not match would pass them by.
		if target, err = url.ParseRequestURI(path); err != nil {
			return nil, illegible("the :path of the request is not a path")
		}
	}

	target.Scheme, target.Host = cmp.Or(pseudo[":scheme"], "https"), host

	req := &http.Request{Method: method, URL: target, Host: host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: lengthOf(header)}
	if head.GetEndOfStream() {
		req.ContentLength = 0
	}

	return req.WithContext(ctx), nil
}

// lengthOf returns the Content-Length of a message, or -1 without one.
func lengthOf(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// addBody adds a whole body to a request.
func addBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}

// responseOf returns the answer that policies see, without its body, or an error if it has no status.
func responseOf(req *http.Request, head *extprocv3.HttpHeaders) (*http.Response, error) {
	header, pseudo, _ := fields(head.GetHeaders())
	code, err := strconv.Atoi(pseudo[":status"])
	if err != nil || code < 100 || code > 999 {
		return nil, errors.New("the answer has no status")
	}

	return &http.Response{
		StatusCode: code, Status: pseudo[":status"] + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: lengthOf(header), Request: req,
	}, nil
}
