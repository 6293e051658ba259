import Bytes
import Crypto
import System

/// Reason why a request to a hub failed.
public struct HubFailure: Error, Sendable, CustomStringConvertible {
    public let description: String

    public init(_ description: String) { self.description = description }
}

/// Error of a request that the caller interrupted.
public struct HubInterruption: Error, Sendable {
    public init() {}
}

/// Sender of HTTP requests to a hub. Each request uses its own connection.
public struct HubRequest {
    private let hub: HubAddress
    private let token: String?
    private let trust: TLSContext?
    private let patience: HubLine.Patience

    /// Largest answer in bytes.
    private static let mostBytes = 16 << 20

    /// Makes a sender of requests to one hub.
    ///
    /// - Parameters:
    ///   - token: token of an operator; nil if the server asks for none.
    ///   - certificates: a file of certificates to trust in addition to the system's, for `https`.
    ///   - milliseconds: longest wait for each operation on the connection.
    ///   - isInterrupted: condition that ends a wait early.
    public init(
        _ hub: HubAddress, token: String?, trusting certificates: String? = nil, waiting milliseconds: Int,
        isInterrupted: @escaping () -> Bool = { false }
    ) throws(TLSConfigurationError) {
        self.hub = hub
        self.token = token
        trust = hub.isSecure ? try TLSContext(trusting: certificates) : nil
        patience = HubLine.Patience(milliseconds: milliseconds, isInterrupted: isInterrupted)
    }

    public func get(_ target: String, accepting form: String = "application/json") throws -> HubAnswer {
        try answer("GET", target, form, [])
    }

    public func delete(_ target: String, accepting form: String = "application/json") throws -> HubAnswer {
        try answer("DELETE", target, form, [])
    }

    public func post(_ target: String, _ json: [UInt8]) throws -> HubAnswer {
        try answer("POST", target, "application/json", json)
    }

    private func answer(_ method: String, _ target: String, _ form: String, _ body: [UInt8]) throws -> HubAnswer {
        var request = ByteWriter(capacity: body.count + 512)
        request.append("\(method) \(hub.path)\(target) HTTP/1.1\r\nHost: \(hub.place)\r\nConnection: close\r\n")
        request.append("Accept: \(form)\r\n")
        if let token { request.append("Authorization: Bearer \(token)\r\napikey: \(token)\r\n") }
        if method == "POST" {
            request.append("Content-Type: application/json\r\nContent-Length: \(body.count)\r\n")
        }
        request.append("\r\n")
        request.append(body)
        do {
            return try exchange(request.bytes.copied())
        } catch let error as SystemError {
            throw HubFailure("\(hub): \(error)")
        }
    }

    private func exchange(_ request: [UInt8]) throws -> HubAnswer {
        let line = try HubLine(hub, trust, patience)
        defer { line.close() }
        try line.send(request)
        var bytes: [UInt8] = []
        while let more = try line.receive() {
            bytes += more
            guard bytes.count <= Self.mostBytes else { throw HubFailure("the answer of \(hub) is too large") }
        }
        guard let answer = HubAnswer(bytes) else {
            throw HubFailure("\(hub) sent no HTTP answer, or only a part of one")
        }
        return answer
    }
}
