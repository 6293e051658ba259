/// HTTP answer of a hub, parsed from all bytes that a connection received.
public struct HubAnswer: Sendable {
    public let status: Int
    /// Values of the answer's headers, by the header's name in lower case.
    private let headers: [String: String]
    public let body: [UInt8]

    public func header(_ name: String) -> String? { headers[name] }

    public var text: String { String(decoding: body, as: UTF8.self) }

    /// Parses all bytes of an HTTP answer; nil if they are invalid or incomplete.
    public init?(_ bytes: [UInt8]) {
        guard let end = Self.endOfHead(bytes) else { return nil }
        let lines = String(decoding: bytes[..<end], as: UTF8.self).split(separator: "\r\n")
        let words = lines.first?.split(separator: " ") ?? []
        guard words.count > 1, words[0].hasPrefix("HTTP/1."), let status = Int(words[1]) else { return nil }
        self.status = status
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
            let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2 else { return nil }
            headers[parts[0].lowercased()] = String(parts[1].drop { $0 == " " })
        }
        self.headers = headers
        let rest = bytes[(end + 4)...]
        if headers["transfer-encoding"]?.lowercased() == "chunked" {
            guard let whole = Self.joined(rest) else { return nil }
            body = whole
        } else if let length = headers["content-length"].flatMap({ Int($0) }) {
            guard length >= 0, rest.count >= length else { return nil }
            body = Array(rest.prefix(length))
        } else {
            body = Array(rest)
        }
    }

    private static func endOfHead(_ bytes: [UInt8]) -> Int? {
        guard bytes.count >= 4 else { return nil }
        return (0...bytes.count - 4).first {
            bytes[$0] == 13 && bytes[$0 + 1] == 10 && bytes[$0 + 2] == 13 && bytes[$0 + 3] == 10
        }
    }

    /// Returns the data of a chunked body without its framing; nil if the body is incomplete.
    private static func joined(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
        var rest = bytes
        var whole: [UInt8] = []
        while let line = rest.firstIndex(of: 13) {
            let digits = String(
                decoding: rest[rest.startIndex..<line].prefix { $0 != UInt8(ascii: ";") }, as: UTF8.self)
            guard let size = Int(digits.filter { $0 != " " }, radix: 16), size >= 0 else { return nil }
            if size == 0 { return whole }
            let begin = line + 2
            guard begin <= rest.endIndex, size <= rest.endIndex - begin else { return nil }
            whole += rest[begin..<begin + size]
            rest = rest[(begin + size)...].dropFirst(2)
        }
        return nil
    }
}
