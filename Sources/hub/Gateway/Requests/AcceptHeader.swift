import WebSocket

/// Media types that a client accepts as an answer (RFC 9110 §12.5.1).
public struct AcceptHeader {
    public let allowsJSON: Bool

    public init(_ value: String?) {
        guard let value, !value.allSatisfy(\.isWhitespace) else {
            allowsJSON = true
            return
        }
        allowsJSON = value.split(separator: ",").contains(where: Self.isJSON)
    }

    /// True if the media range includes JSON. A weight of zero excludes the range.
    private static func isJSON(_ range: Substring) -> Bool {
        let parts = range.split(separator: ";").map { $0.filter { !$0.isWhitespace }.lowercased() }
        guard let type = parts.first, !parts.dropFirst().contains(where: isZeroWeight) else { return false }
        return ["*/*", "application/*", "application/json"].contains(type)
            || (type.hasPrefix("application/") && type.hasSuffix("+json"))
    }

    private static func isZeroWeight(_ parameter: String) -> Bool {
        parameter.hasPrefix("q=") && Double(parameter.dropFirst(2)) == 0
    }
}

extension HTTPResponse {
    public static var notAcceptable: HTTPResponse { .json(HTTPStatus(rawValue: 406), Array(#""Not Acceptable""#.utf8)) }
}
