/// Parser of a server's answer to an HTTP request (RFC 9112). The head, the chunks or the end of the connection
/// determine the answer's length.
struct AnswerParser: Sendable {
    struct Malformed: Error {
        let words: String
    }

    private enum Length: Sendable {
        case bytes(Int)
        case chunks
        case untilEnd
    }

    static let maximumHeadBytes = 64 << 10
    static let maximumBodyBytes = 64 << 20

    private var bytes: [UInt8] = []
    private var head: (status: Int, length: Length)?
    private var body: [UInt8] = []

    mutating func append(_ more: [UInt8]) { bytes += more }

    /// Returns the complete answer; nil while bytes are missing.
    mutating func answer() throws -> TransportAnswer? {
        if head == nil { try readHead() }
        guard let (status, length) = head else { return nil }
        switch length {
        case .bytes(let count):
            guard bytes.count >= count else { return nil }
            return TransportAnswer(status: status, body: Array(bytes[..<count]))
        case .chunks:
            while let chunk = try readChunk() {
                if chunk.isEmpty { return TransportAnswer(status: status, body: body) }
                body += chunk
                guard body.count <= Self.maximumBodyBytes else { throw Self.tooLong }
            }
            return nil
        case .untilEnd:
            guard bytes.count <= Self.maximumBodyBytes else { throw Self.tooLong }
            return nil
        }
    }

    /// Returns the answer that the end of the connection completes; nil if the answer is not complete by then.
    func ended() -> TransportAnswer? {
        guard let (status, length) = head, case .untilEnd = length else { return nil }
        return TransportAnswer(status: status, body: bytes)
    }

    private static let tooLong = Malformed(words: "the answer is longer than \(maximumBodyBytes) bytes")

    private mutating func readHead() throws {
        guard let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) else {
            guard bytes.count < Self.maximumHeadBytes else { throw Malformed(words: "the answer's head does not end") }
            return
        }
        let lines = String(decoding: bytes[..<end.lowerBound], as: UTF8.self).split(separator: "\r\n")
        bytes.removeFirst(end.upperBound)
        let words = lines.first?.split(separator: " ") ?? []
        guard words.count >= 2, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else {
            throw Malformed(words: "whoever answers speaks no HTTP")
        }
        // This is an interim answer (100, 103). The final answer follows.
        if (100..<200).contains(status) { return try readHead() }
        head = (status, try Self.length(lines.dropFirst()))
    }

    private static func length(_ fields: some Sequence<Substring>) throws -> Length {
        var length = Length.untilEnd
        for field in fields {
            let parts = field.split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { continue }
            let value = parts[1].drop { $0 == " " }
            switch parts[0].lowercased() {
            case "transfer-encoding" where value.lowercased() == "chunked": return .chunks
            case "content-length":
                guard let count = Int(value), (0...maximumBodyBytes).contains(count) else { throw tooLong }
                length = .bytes(count)
            default: break
            }
        }
        return length
    }

    /// Returns the data of the next chunk: empty for the last chunk, nil while the chunk is incomplete.
    private mutating func readChunk() throws -> [UInt8]? {
        guard let end = bytes.firstRange(of: Array("\r\n".utf8)) else { return nil }
        let digits = String(decoding: bytes[..<end.lowerBound], as: UTF8.self).prefix { $0 != ";" }
        guard let count = Int(digits, radix: 16), (0...Self.maximumBodyBytes).contains(count) else {
            throw Malformed(words: "a chunk of the answer does not say how long it is")
        }
        if count == 0 { return [] }
        guard bytes.count >= end.upperBound + count + 2 else { return nil }
        defer { bytes.removeFirst(end.upperBound + count + 2) }
        return Array(bytes[end.upperBound..<end.upperBound + count])
    }
}
