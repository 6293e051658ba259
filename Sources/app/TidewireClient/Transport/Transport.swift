import Foundation

/// Address and headers of a connection or request.
package struct TransportRequest: Sendable, Hashable {
    /// URL, which contains the project's key as a parameter. The scheme is `ws` or `wss` for a connection, and `http`
    /// or `https` for a single request.
    package let url: URL
    package let headers: [String: String]

    package init(url: URL, headers: [String: String] = [:]) {
        self.url = url
        self.headers = headers
    }
}

package enum TransportEvent: Sendable, Hashable {
    case opened
    case text(String)
    case bytes([UInt8])
    /// The connection has ended, for the given reason. This is its last event.
    case ended(Tidewire.Interruption)
}

/// A server's answer to an HTTP request.
package struct TransportAnswer: Sendable, Hashable {
    package let status: Int
    package let body: [UInt8]

    package init(status: Int, body: [UInt8]) {
        self.status = status
        self.body = body
    }
}

/// Means of exchanging messages with a server, over a WebSocket. Each system has an implementation; tests use one in
/// memory.
package protocol Transport: Sendable {
    /// Starts a connection and returns without waiting for it. The transport passes the events of the connection to
    /// `hear`, one after the other, from any thread.
    func connect(
        to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
    ) -> any TransportConnection

    /// Sends one GET request. Throws an `Interruption` if there is no answer.
    func get(_ request: TransportRequest) async throws -> TransportAnswer
}

package protocol TransportConnection: Sendable {
    func send(_ text: String)
    /// Closes the connection. The transport reports no event after this call.
    func close()
}

/// Returns the transport of this system.
package func systemTransport() -> any Transport {
    #if os(Linux)
        SocketTransport()
    #elseif canImport(Darwin)
        URLSessionTransport()
    #else
        #error("there is no transport for this system")
    #endif
}
