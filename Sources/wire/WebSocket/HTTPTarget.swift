import Bytes

/// Target in a request's first line, split into its parts (RFC 9112 §3.2).
struct HTTPTarget {
    let path: String
    let segments: [String]
    let queryItems: [HTTPQueryItem]
    /// Authority of a target in absolute form, `http://host/path`; nil for other targets. It replaces the Host header.
    let authority: HTTPAuthority?

    init(_ target: RawSpan, method: String) throws(HTTPRefusal) {
        guard HTTPSyntax.all(of: target, are: { $0 > 32 && $0 < 127 && $0 != UInt8(ascii: "#") }) else {
            throw HTTPRefusal(.badRequest, "the request's target has characters that must be encoded")
        }
        if target.equals("*") {
            guard method == "OPTIONS" else { throw Self.noPath }
            (path, segments, queryItems, authority) = ("*", [], [], nil)
            return
        }
        let start = try Self.authorityEnd(target)
        authority = try start.map { end throws(HTTPRefusal) in try Self.authority(target, end) }
        let local = target.extracting((start ?? 0)..<target.byteCount)
        guard start != nil || (local.byteCount > 0 && local.byte(0) == slash) else { throw Self.noPath }
        let mark = HTTPSyntax.firstIndex(of: UInt8(ascii: "?"), in: local)
        let path = local.extracting(0..<(mark ?? local.byteCount))
        segments = try Self.segments(path)
        self.path = path.byteCount == 0 ? "/" : try Self.decoded(path, in: .path)
        queryItems =
            try mark.map { mark throws(HTTPRefusal) in
                try Self.query(local.extracting(mark + 1..<local.byteCount))
            } ?? []
    }

    private static let noPath = HTTPRefusal(.badRequest, "the request's target is not a path")

    // MARK: Absolute form

    /// Returns the offset at which the path begins in `http://host/path`; nil for a target that is only a path.
    private static func authorityEnd(_ target: RawSpan) throws(HTTPRefusal) -> Int? {
        guard let start = authorityStart(target) else { return nil }
        var end = start
        while end < target.byteCount, target.byte(end) != slash, target.byte(end) != UInt8(ascii: "?") { end += 1 }
        return end
    }

    private static func authorityStart(_ target: RawSpan) -> Int? {
        for scheme in ["http://", "https://"] as [StaticString] {
            let length = scheme.utf8CodeUnitCount
            guard target.byteCount >= length else { continue }
            if HTTPSyntax.lowercased(target.extracting(0..<length).text) == "\(scheme)" { return length }
        }
        return nil
    }

    private static func authority(_ target: RawSpan, _ end: Int) throws(HTTPRefusal) -> HTTPAuthority {
        guard let authority = HTTPAuthority(target.extracting((authorityStart(target) ?? 0)..<end).text) else {
            throw HTTPRefusal(.badRequest, "the request's target names no valid host")
        }
        return authority
    }

    // MARK: Path and query

    private static func segments(_ path: RawSpan) throws(HTTPRefusal) -> [String] {
        var segments: [String] = []
        var start = 1
        while start <= path.byteCount, path.byteCount > 1 {
            let end = HTTPSyntax.firstIndex(of: slash, in: path, from: start) ?? path.byteCount
            segments.append(try decoded(path.extracting(start..<end), in: .path))
            start = end + 1
        }
        return segments
    }

    /// Parses a query such as `a=1&b`. An item without `=` gets an empty value; empty items are skipped.
    private static func query(_ query: RawSpan) throws(HTTPRefusal) -> [HTTPQueryItem] {
        var items: [HTTPQueryItem] = []
        var start = 0
        while start < query.byteCount {
            let end = HTTPSyntax.firstIndex(of: UInt8(ascii: "&"), in: query, from: start) ?? query.byteCount
            if end > start { items.append(try queryItem(query.extracting(start..<end))) }
            start = end + 1
        }
        return items
    }

    private static func queryItem(_ item: RawSpan) throws(HTTPRefusal) -> HTTPQueryItem {
        let equals = HTTPSyntax.firstIndex(of: UInt8(ascii: "="), in: item) ?? item.byteCount
        let name = try decoded(item.extracting(0..<equals), in: .query)
        let value = try decoded(item.extracting(min(equals + 1, item.byteCount)..<item.byteCount), in: .query)
        return HTTPQueryItem(name, value)
    }

    private enum Part { case path, query }

    /// Decodes percent-encoding exactly once: `%2541` becomes `%41`. Refuses text that is not UTF-8, and control
    /// characters in a path.
    private static func decoded(_ text: RawSpan, in part: Part) throws(HTTPRefusal) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.byteCount)
        var offset = 0
        while offset < text.byteCount {
            let byte = text.byte(offset)
            offset += 1
            if byte == UInt8(ascii: "%") {
                bytes.append(try escaped(text, offset))
                offset += 2
            } else {
                bytes.append(part == .query && byte == UInt8(ascii: "+") ? HTTPSyntax.space : byte)
            }
        }
        if part == .path, bytes.contains(where: { $0 < 32 || $0 == 127 }) {
            throw HTTPRefusal(.badRequest, "the request's path has a control character")
        }
        guard let decoded = String(validating: bytes, as: UTF8.self) else {
            throw HTTPRefusal(.badRequest, "the request's target is not UTF-8")
        }
        return decoded
    }

    private static func escaped(_ text: RawSpan, _ offset: Int) throws(HTTPRefusal) -> UInt8 {
        guard offset + 2 <= text.byteCount, let high = Hex.value(text.byte(offset)),
            let low = Hex.value(text.byte(offset + 1))
        else { throw HTTPRefusal(.badRequest, "the request's target has a percent sign that encodes nothing") }
        return high << 4 | low
    }
}

private let slash = UInt8(ascii: "/")
