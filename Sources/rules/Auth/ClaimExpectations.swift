import Bytes

/// Values that the operator requires of claims, such as `{"iss": "https://…"}`. A token without such a claim is
/// accepted.
public struct ClaimExpectations: Sendable {
    public static let none = ClaimExpectations([:])

    /// Expected values, ordered by the claims' names. Supabase Realtime checks claims in the same order.
    let expected: [(name: String, value: JSONScalar)]

    /// Creates the expectations. Values for `exp` and `iat` are ignored, because other rules apply to these claims.
    public init(_ values: [String: JSONScalar]) {
        expected = values.filter { $0.key != "exp" && $0.key != "iat" }
            .sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) }
            .map { (name: $0.key, value: $0.value) }
    }

    /// Reads the expectations from a JSON object whose members are texts, numbers, booleans or null.
    public static func parse(_ bytes: RawSpan) throws(ClaimExpectationsError) -> ClaimExpectations {
        do throws(ByteError) {
            var scanner = JSONScanner(bytes)
            guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
            var values: [String: JSONScalar] = [:]
            while try scanner.next() == .name {
                let name = scanner.text
                guard let value = JSONScalar(try scanner.next(), in: scanner) else {
                    throw ByteError(expected: "a text, a number, true, false or null", offset: scanner.offset)
                }
                values[name] = value
            }
            _ = try scanner.next()
            return ClaimExpectations(values)
        } catch {
            throw ClaimExpectationsError(reason: error)
        }
    }
}

/// Reason why a text cannot be read as expectations.
public struct ClaimExpectationsError: Error, Sendable, CustomStringConvertible {
    let reason: ByteError

    public var description: String { "is not an object of claims and their values: \(reason)" }
}
