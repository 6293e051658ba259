/// The maxima of a request; what is larger is refused before it is understood.
public struct HTTPLimits: Sendable {
    /// Request line and headers together.
    public var maximumHeadBytes: Int
    /// Path and query, as they came.
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

/// How a request's body is delimited.
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

/// A request's head, read whole and checked.
public struct HTTPRequest: Equatable, Sendable {
    /// As it came: methods are case-sensitive.
    public let method: String
    /// The request's target as it came. It may hold secrets of the query, so it does not belong into a log.
    public let target: String
    /// The path, percent-decoded once. Dots in it mean nothing: it names a route, never a file.
    public let path: String
    /// The path's segments, split before they were decoded: a segment may itself hold a slash.
    public let pathSegments: [String]
    /// In the order they came, percent-decoded once, `+` as a blank.
    public let queryItems: [HTTPQueryItem]
    public let version: HTTPVersion
    /// The names in lower case. A header that came more than once stands here once, its values joined by commas.
    public let headers: [HTTPHeader]
    /// Host and port that the client named; those of the target if it names one. Nil for HTTP/1.0 without any.
    public let host: HTTPAuthority?
    public let body: HTTPBodyLength

    public func header(_ name: String) -> String? {
        headers.first { $0.name == name }?.value
    }

    /// Of several of one name the last counts, as in the reference server.
    public func query(_ name: String) -> String? {
        queryItems.last { $0.name == name }?.value
    }

    /// Whether a header that is a list of tokens has this one, in whatever case.
    public func header(_ name: String, hasToken token: String) -> Bool {
        guard let value = header(name) else { return false }
        return HTTPSyntax.list(value).contains { HTTPSyntax.lowercased($0) == token }
    }

    /// HTTP/1.0's own form of it is not offered: such a client gets one answer a connection.
    public var keepAlive: Bool { version == .http11 && !header("connection", hasToken: "close") }

    public var isHead: Bool { method == "HEAD" }

    /// The client waits for `HTTPResponse.continue` before it sends the body.
    public var expectsContinue: Bool { version == .http11 && body != .none && header("expect") != nil }
}
