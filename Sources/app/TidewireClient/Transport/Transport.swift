import Foundation

/// Where a connection goes and what it says of itself.
public struct TransportRequest: Sendable, Hashable {
    /// `ws` or `wss`, of a request that has one answer `http` or `https`, with the key among its parameters.
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
    /// The last that is heard of it.
    case ended(Interruption)
}

/// What a server answered to a request.
public struct TransportAnswer: Sendable, Hashable {
    public let status: Int
    public let body: [UInt8]

    public init(status: Int, body: [UInt8]) {
        self.status = status
        self.body = body
    }
}

/// What carries messages. There is one for each system, one in memory for tests, and apps may bring their own.
public protocol Transport: Sendable {
    /// Returns at once; what becomes of it is heard, one event after the other, from any thread.
    func connect(
        to request: TransportRequest, hear: @escaping @Sendable (TransportEvent) -> Void
    ) -> any TransportConnection

    /// Asks once, by GET. Throws an `Interruption` where there is no answer.
    func get(_ request: TransportRequest) async throws -> TransportAnswer
}

public protocol TransportConnection: Sendable {
    func send(_ text: String)
    /// Nothing is heard of it afterwards.
    func close()
}

/// The one that this system has.
public func systemTransport() -> any Transport {
    #if os(Linux)
        SocketTransport()
    #else
        URLSessionTransport()
    #endif
}
