/// What a client and we agreed about permessage-deflate (RFC 7692). Neither side remembers a message for the next one.
public struct DeflateAgreement: Equatable, Sendable {
    /// How far back our compressed messages may look, as a power of two: 8 to 15.
    public let serverWindowBits: Int
    /// Whether the client asked for a window, so that the answer must name it.
    let saysServerWindow: Bool

    /// Whether a message of this many bytes may be sent compressed by a deflater of whatever window: one that is no longer
    /// than the client's window looks back no further than that. Any message may be sent without compression instead.
    public func allows(messageBytes: Int) -> Bool {
        serverWindowBits == 15 || messageBytes <= 1 << serverWindowBits
    }

    /// The value of Sec-WebSocket-Extensions in our answer.
    var answer: String {
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            + (saysServerWindow ? "; server_max_window_bits=\(serverWindowBits)" : "")
    }
}

/// Reads what a client offers in Sec-WebSocket-Extensions (RFC 6455 §9.1, RFC 7692 §5 and §7.1).
enum DeflateOffer {
    /// The first offer that can be met, as the client listed them by preference; nil declines all.
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

        /// RFC 7692 §7.1: an offer with a parameter that is unknown, or has a value it cannot have, is declined.
        var isAcceptable: Bool {
            switch name {
            case "server_no_context_takeover", "client_no_context_takeover": value == nil
            case "server_max_window_bits": windowBits != nil
            case "client_max_window_bits": value == nil || windowBits != nil
            default: false
            }
        }

        /// 8 to 15, in decimal without leading zeros.
        var windowBits: Int? {
            guard let value, let bits = Int(value), (8...15).contains(bits), value == String(bits) else { return nil }
            return bits
        }
    }
}
