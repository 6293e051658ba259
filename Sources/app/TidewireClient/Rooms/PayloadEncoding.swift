import Foundation

extension JSONValue {
    /// Encodes a value of the app's type. ``TidewireRoom/messages(event:as:skipped:)`` decodes exactly the same value:
    /// dates have microseconds, and bytes are hexadecimal digits.
    ///
    /// - Throws: `EncodingError` if JSON cannot express the value, for example an infinite number.
    init(encoding value: some Encodable) throws {
        if let json = value as? JSONValue {
            self = json
            return
        }
        let encoder = JSONEncoder()
        encoder.dateEncodingStrategy = .custom { date, encoder in
            var container = encoder.singleValueContainer()
            try container.encode(PostgresTime.text(date))
        }
        encoder.dataEncodingStrategy = .custom { data, encoder in
            var container = encoder.singleValueContainer()
            try container.encode("\\x" + data.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined())
        }
        self = try JSONValue(parsing: Array(encoder.encode(value)))
    }
}
