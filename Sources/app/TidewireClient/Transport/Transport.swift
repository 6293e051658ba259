import Foundation

/// Address and headers of a connection or request.
public struct TransportRequest: Sendable, Hashable {
    /// URL with the key among its parameters: `ws` or `wss` for a connection, `http` or `https` for a request with one
    /// answer.
    public let url: URL
    public let headers: [String: String]

    public init(url: URL, headers: [String: String] = [:]) {
        self.url = url
        self.headers = headers
    }
}

public enum TransportEvent: Sendable, Hashable {
    case opened
    case text(String)
    case bytes([UInt8])
    /// The last event of a connection.
    case ended(Interruption)
}

/// A server's answer to an HTTP request.
public struct TransportAnswer: Sendable, Hashable {
    public let status: Int
    public let body: [UInt8]

    public init(status: Int, body: [UInt8]) {
        self.status = status
        self.body = body
    }
}

/// Transport of messages between client and server. There is one for each system and one in memory for tests. A test of
/// an app may provide its own.
public protocol Transport: Sendable {
    /// Starts a connection and returns at once. The transport reports events one after the other, from any thread.
    func connect(
        to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
    ) -> any TransportConnection

    /// Sends one GET request. Throws an `Interruption` if there is no answer.
    func get(_ request: TransportRequest) async throws -> TransportAnswer
}

public protocol TransportConnection: Sendable {
    func send(_ text: String)
    /// Closes the connection. No events follow.
    func close()
}

/// Returns the transport of this system.
public func systemTransport() -> any Transport {
    #if os(Linux)
        SocketTransport()
    #else
        URLSessionTransport()
    #endif
}
