/// Limits of a request. A request above a limit is refused.
public struct HTTPLimits: Sendable {
    /// Largest number of bytes of the request line and the headers together.
    public var maximumHeadBytes: Int
    /// Largest number of bytes of path and query, still encoded.
    public var maximumTargetBytes: Int
    public var maximumHeaders: Int
    public var maximumBodyBytes: Int

    public init(maximumHeadBytes: Int, maximumTargetBytes: Int, maximumHeaders: Int, maximumBodyBytes: Int) {
        self.maximumHeadBytes = maximumHeadBytes
        self.maximumTargetBytes = maximumTargetBytes
        self.maximumHeaders = maximumHeaders
        self.maximumBodyBytes = maximumBodyBytes
    }
}

public enum HTTPVersion: Sendable {
    case http10
    case http11
}

/// Way in which the end of a request's body is found: there is no body, its length is known, or it is chunked.
public enum HTTPBodyLength: Equatable, Sendable {
    case bytes(Int)
    case chunked

    public static let none = HTTPBodyLength.bytes(0)
}

/// One `name=value` of a query, decoded.
public struct HTTPQueryItem: Hashable, Sendable {
    public let name: String
    public let value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }
}

/// Head of a request, completely received and checked.
public struct HTTPRequest: Equatable, Sendable {
    /// Method exactly as received, because methods are case-sensitive.
    public let method: String
    /// Target exactly as received. Its query may contain secrets, so it must not be logged.
    public let target: String
    /// Path, percent-decoded once. Dots in it have no meaning, because the path names a route and never a file.
    public let path: String
    /// Segments of the path. The path is split before it is decoded, so a segment may contain a slash.
    public let pathSegments: [String]
    /// Query items in the order received, percent-decoded once. A `+` stands for a blank.
    public let queryItems: [HTTPQueryItem]
    public let version: HTTPVersion
    /// Headers with names in lower case. A repeated header is listed once; its values are joined by commas, cookies by
    /// semicolons.
    public let headers: [HTTPHeader]
    /// Host and port from the request's target or, if it has none, from the Host header. Nil for an HTTP/1.0 request
    /// without either.
    public let host: HTTPAuthority?
    public let body: HTTPBodyLength

    public func header(_ name: String) -> String? {
        headers.first { $0.name == name }?.value
    }

    /// Returns a query item's value; nil if there is none. If a name occurs several times, the last one counts, as in
    /// the reference server (Supabase Realtime).
    public func query(_ name: String) -> String? {
        queryItems.last { $0.name == name }?.value
    }

    /// True if the header's value is a list of tokens that contains `token`, in upper or lower case.
    public func header(_ name: String, hasToken token: String) -> Bool {
        guard let value = header(name) else { return false }
        return HTTPSyntax.list(value).contains { HTTPSyntax.lowercased($0) == token }
    }

    /// True if the connection stays open after the answer. Always false for HTTP/1.0, because the hub does not support
    /// its keep-alive.
    public var keepAlive: Bool { version == .http11 && !header("connection", hasToken: "close") }

    public var isHead: Bool { method == "HEAD" }

    /// True if the client waits for `HTTPResponse.continue` before it sends the body.
    public var expectsContinue: Bool { version == .http11 && body != .none && header("expect") != nil }
}
