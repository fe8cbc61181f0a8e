package grpcthrottle

// Authority is authority, for tests.
var Authority = authority
