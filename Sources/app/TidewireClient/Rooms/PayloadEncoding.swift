import Foundation

extension JSONValue {
    /// Encodes a value of the app's type, so that ``TidewireRoom/messages(event:as:skipped:)`` decodes it exactly:
    /// dates in PostgreSQL's form to the microsecond, and bytes as hexadecimal digits.
    ///
    /// - Throws: `EncodingError` if the value cannot be JSON, for example because a number is infinite.
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
