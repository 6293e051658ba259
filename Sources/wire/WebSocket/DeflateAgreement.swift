/// Result of negotiating permessage-deflate (RFC 7692) with a client. Both sides compress each message on its own.
public struct DeflateAgreement: Equatable, Sendable {
    /// Window size of the messages that the hub compresses, as a power of two: 8 to 15.
    public let serverWindowBits: Int
    /// True if the client asked for a window size, so that the answer must state it.
    let saysServerWindow: Bool

    /// True if the hub may compress a message of `messageBytes` bytes with a window of any size. A compressed message
    /// never refers back further than its own length. The hub may send any message uncompressed instead.
    public func allows(messageBytes: Int) -> Bool {
        serverWindowBits == 15 || messageBytes <= 1 << serverWindowBits
    }

    /// Value of Sec-WebSocket-Extensions in the hub's answer.
    var answer: String {
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            + (saysServerWindow ? "; server_max_window_bits=\(serverWindowBits)" : "")
    }
}

/// Parser of a client's offers in Sec-WebSocket-Extensions (RFC 6455 §9.1, RFC 7692 §5 and §7.1).
enum DeflateOffer {
    /// Returns the first acceptable offer, in the client's order of preference. Nil declines all offers.
    static func agreement(with offers: String) -> DeflateAgreement? {
        for offer in offers.split(separator: ",") {
            if let agreement = agreement(withOne: offer) { return agreement }
        }
        return nil
    }

    private static func agreement(withOne offer: Substring) -> DeflateAgreement? {
        let parts = offer.split(separator: ";", omittingEmptySubsequences: false).map {
            HTTPSyntax.trimmed(String($0))
        }
        guard let name = parts.first, HTTPSyntax.lowercased(name) == "permessage-deflate" else { return nil }
        var seen: Set<String> = []
        var windowBits: Int?
        for part in parts.dropFirst() {
            guard let parameter = Parameter(part), seen.insert(parameter.name).inserted, parameter.isAcceptable else {
                return nil
            }
            if parameter.name == "server_max_window_bits" { windowBits = parameter.windowBits }
        }
        return DeflateAgreement(serverWindowBits: windowBits ?? 15, saysServerWindow: windowBits != nil)
    }

    private struct Parameter {
        let name: String
        let value: String?

        init?(_ text: String) {
            let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard let first = parts.first, !first.isEmpty else { return nil }
            name = HTTPSyntax.lowercased(HTTPSyntax.trimmed(String(first)))
            value = parts.count == 2 ? Self.unquoted(HTTPSyntax.trimmed(String(parts[1]))) : nil
        }

        private static func unquoted(_ text: String) -> String {
            guard text.utf8.count >= 2, text.hasPrefix("\""), text.hasSuffix("\"") else { return text }
            return String(text.dropFirst().dropLast())
        }

        /// True if the parameter is known and has a valid value. Otherwise RFC 7692 §7.1 requires the server to decline
        /// the offer.
        var isAcceptable: Bool {
            switch name {
            case "server_no_context_takeover", "client_no_context_takeover": value == nil
            case "server_max_window_bits": windowBits != nil
            case "client_max_window_bits": value == nil || windowBits != nil
            default: false
            }
        }

        /// Window size from 8 to 15, written in decimal without leading zeros; nil for any other value.
        var windowBits: Int? {
            guard let value, let bits = Int(value), (8...15).contains(bits), value == String(bits) else { return nil }
            return bits
        }
    }
}
