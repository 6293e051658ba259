import Settings

/// The hub's HTTP interface as an OpenAPI document, which `/api/openapi` answers.
public enum OpenAPI {
    public static let document = Array(text.utf8)

    // swift-format-ignore
    private static let text = #"""
        {
          "openapi": "3.0.3",
          "info": {
            "title": "Tidewire",
            "version": "\#(Product.version)",
            "description": "The HTTP interface of the hub, which is that of Supabase Realtime. Every path is served below /realtime/v1 as well; there the WebSocket is /realtime/v1/websocket. The tenant of a request is named by the first part of its Host header."
          },
          "servers": [{"url": "/"}],
          "tags": [
            {"name": "clients", "description": "With a token of the tenant's users."},
            {"name": "tenants", "description": "With a token of the hub's operators."},
            {"name": "operating", "description": "For whoever runs the hub."}
          ],
          "paths": {
            "/socket/websocket": {
              "get": {
                "tags": ["clients"],
                "operationId": "openSocket",
                "summary": "Open a WebSocket",
                "description": "Refusals come after a pause (connect_error_backoff).",
                "parameters": [
                  {
                    "name": "apikey",
                    "in": "query",
                    "description": "A token, if there is no x-api-key header.",
                    "schema": {"type": "string"}
                  },
                  {"name": "x-api-key", "in": "header", "description": "A token.", "schema": {"type": "string"}},
                  {
                    "name": "vsn",
                    "in": "query",
                    "description": "The serializer: 1.0.x or 2.0.x.",
                    "schema": {"type": "string", "default": "1.0.0"}
                  },
                  {"name": "log_level", "in": "query", "schema": {"type": "string"}}
                ],
                "responses": {
                  "101": {"description": "Frames follow."},
                  "400": {"description": "Not a WebSocket handshake."},
                  "401": {
                    "description": "No token, or one that is not good.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "403": {
                    "description": "The tenant is suspended; without a body, the serializer is not known.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "404": {
                    "description": "There is no such tenant.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "429": {
                    "description": "Too many clients, or too many joins.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "500": {
                    "description": "The token's claims were refused.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "503": {
                    "description": "The hub ends, or cannot read its log.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  }
                }
              }
            },
            "/api/broadcast": {
              "post": {
                "tags": ["clients"],
                "operationId": "broadcast",
                "summary": "Send messages to channels",
                "security": [{"bearer": []}, {"apikey": []}],
                "requestBody": {
                  "required": true,
                  "content": {
                    "application/json": {
                      "schema": {
                        "type": "object",
                        "required": ["messages"],
                        "properties": {
                          "messages": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"$ref": "#/components/schemas/Message"}
                          }
                        }
                      }
                    }
                  }
                },
                "responses": {
                  "202": {
                    "description": "Accepted; private messages without permission were dropped.",
                    "headers": {
                      "x-rate-rolling": {
                        "description": "Messages a second, on average, of the last seconds.",
                        "schema": {"type": "integer"}
                      },
                      "x-rate-limit": {"description": "How many there may be.", "schema": {"type": "integer"}},
                      "x-rate-limit-remaining": {
                        "description": "How many are left.",
                        "schema": {"type": "integer"}
                      }
                    }
                  },
                  "400": {"description": "The body is not JSON."},
                  "401": {"$ref": "#/components/responses/Unauthorized"},
                  "403": {"$ref": "#/components/responses/Suspended"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "413": {"description": "The body is too large."},
                  "422": {"$ref": "#/components/responses/Invalid"},
                  "429": {"$ref": "#/components/responses/TooMany"}
                }
              }
            },
            "/api/broadcast/{topic}/events/{event}": {
              "post": {
                "tags": ["clients"],
                "operationId": "broadcastOne",
                "summary": "Send one message to a channel",
                "security": [{"bearer": []}, {"apikey": []}],
                "parameters": [
                  {
                    "name": "topic",
                    "in": "path",
                    "required": true,
                    "description": "Without its prefix, percent-encoded.",
                    "schema": {"type": "string"}
                  },
                  {"name": "event", "in": "path", "required": true, "schema": {"type": "string"}},
                  {
                    "name": "private",
                    "in": "query",
                    "schema": {"type": "string", "enum": ["true", "false"], "default": "false"}
                  }
                ],
                "requestBody": {
                  "description": "The payload. A value that is no object becomes the member _json of one.",
                  "content": {
                    "application/json": {"schema": {}},
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                  }
                },
                "responses": {
                  "202": {
                    "description": "Accepted.",
                    "headers": {
                      "x-rate-rolling": {
                        "description": "Messages a second, on average, of the last seconds.",
                        "schema": {"type": "integer"}
                      },
                      "x-rate-limit": {"description": "How many there may be.", "schema": {"type": "integer"}},
                      "x-rate-limit-remaining": {
                        "description": "How many are left.",
                        "schema": {"type": "integer"}
                      }
                    }
                  },
                  "400": {"description": "The body is not JSON."},
                  "401": {"$ref": "#/components/responses/Unauthorized"},
                  "403": {
                    "description": "No permission to send there, or the tenant is suspended.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "413": {"description": "The body is too large."},
                  "415": {
                    "description": "Another media type.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
                  },
                  "422": {
                    "description": "Too large a payload, or the database did not say whether it may be sent.",
                    "content": {
                      "application/json": {
                        "schema": {
                          "anyOf": [
                            {"$ref": "#/components/schemas/Errors"},
                            {"$ref": "#/components/schemas/Refusal"}
                          ]
                        }
                      }
                    }
                  },
                  "429": {"$ref": "#/components/responses/TooMany"},
                  "500": {
                    "description": "Permission could not be decided.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              }
            },
            "/api/ping": {
              "get": {
                "tags": ["clients"],
                "operationId": "ping",
                "summary": "Whether the tenant is served",
                "responses": {
                  "200": {
                    "description": "It is.",
                    "headers": {
                      "x-rate-rolling": {
                        "description": "Messages a second, on average, of the last seconds.",
                        "schema": {"type": "integer"}
                      },
                      "x-rate-limit": {"description": "How many there may be.", "schema": {"type": "integer"}},
                      "x-rate-limit-remaining": {
                        "description": "How many are left.",
                        "schema": {"type": "integer"}
                      }
                    },
                    "content": {
                      "application/json": {
                        "schema": {
                          "type": "object",
                          "required": ["message"],
                          "properties": {"message": {"type": "string", "enum": ["Success"]}}
                        }
                      }
                    }
                  },
                  "401": {"$ref": "#/components/responses/Unauthorized"}
                }
              }
            },
            "/api/tenants": {
              "get": {
                "tags": ["tenants"],
                "operationId": "listTenants",
                "summary": "All tenants",
                "security": [{"operator": []}],
                "responses": {
                  "200": {
                    "description": "All of them.",
                    "content": {
                      "application/json": {
                        "schema": {
                          "type": "object",
                          "properties": {
                            "data": {"type": "array", "items": {"$ref": "#/components/schemas/Tenant"}}
                          }
                        }
                      }
                    }
                  },
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"}
                }
              },
              "post": {
                "tags": ["tenants"],
                "operationId": "createTenant",
                "summary": "Create a tenant, or change it if it is there",
                "security": [{"operator": []}],
                "requestBody": {"$ref": "#/components/requestBodies/Tenant"},
                "responses": {
                  "200": {"$ref": "#/components/responses/Stored"},
                  "201": {"$ref": "#/components/responses/Stored"},
                  "400": {
                    "description": "The body is not JSON.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "413": {
                    "description": "The body is too large.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "422": {"$ref": "#/components/responses/Invalid"},
                  "500": {
                    "description": "It could not be stored, or its database not be prepared.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              }
            },
            "/api/tenants/{id}": {
              "parameters": [{"$ref": "#/components/parameters/id"}],
              "get": {
                "tags": ["tenants"],
                "operationId": "showTenant",
                "summary": "One tenant",
                "security": [{"operator": []}],
                "responses": {
                  "200": {"$ref": "#/components/responses/Tenant"},
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "404": {"$ref": "#/components/responses/NotFound"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"}
                }
              },
              "put": {
                "tags": ["tenants"],
                "operationId": "putTenant",
                "summary": "Change a tenant, or create it",
                "security": [{"operator": []}],
                "requestBody": {"$ref": "#/components/requestBodies/Tenant"},
                "responses": {
                  "200": {"$ref": "#/components/responses/Stored"},
                  "201": {"$ref": "#/components/responses/Stored"},
                  "400": {
                    "description": "The body is not JSON.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "413": {
                    "description": "The body is too large.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "422": {"$ref": "#/components/responses/Invalid"},
                  "500": {
                    "description": "It could not be stored, or its database not be prepared.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              },
              "patch": {
                "tags": ["tenants"],
                "operationId": "patchTenant",
                "summary": "Change what is given of a tenant, or create it",
                "security": [{"operator": []}],
                "requestBody": {"$ref": "#/components/requestBodies/Tenant"},
                "responses": {
                  "200": {"$ref": "#/components/responses/Stored"},
                  "201": {"$ref": "#/components/responses/Stored"},
                  "400": {
                    "description": "The body is not JSON.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "413": {
                    "description": "The body is too large.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  },
                  "422": {"$ref": "#/components/responses/Invalid"},
                  "500": {
                    "description": "It could not be stored, or its database not be prepared.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              },
              "delete": {
                "tags": ["tenants"],
                "operationId": "deleteTenant",
                "summary": "Delete a tenant",
                "description": "Its clients are disconnected and its replication slot is dropped.",
                "security": [{"operator": []}],
                "responses": {
                  "204": {"description": "It is gone, or never was."},
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "422": {"$ref": "#/components/responses/Invalid"},
                  "500": {
                    "description": "It could not be deleted.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              }
            },
            "/api/tenants/{id}/reload": {
              "parameters": [{"$ref": "#/components/parameters/id"}],
              "post": {
                "tags": ["tenants"],
                "operationId": "reloadTenant",
                "summary": "Begin anew: clients are disconnected, the database is connected to again",
                "security": [{"operator": []}],
                "responses": {
                  "204": {"description": "Done."},
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "404": {"$ref": "#/components/responses/NotFound"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "500": {
                    "description": "It was not done.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              }
            },
            "/api/tenants/{id}/shutdown": {
              "parameters": [{"$ref": "#/components/parameters/id"}],
              "post": {
                "tags": ["tenants"],
                "operationId": "shutdownTenant",
                "summary": "Let go of the tenant's database",
                "security": [{"operator": []}],
                "responses": {
                  "204": {"description": "Done."},
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "404": {"$ref": "#/components/responses/NotFound"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"},
                  "500": {
                    "description": "It was not done.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
                  }
                }
              }
            },
            "/api/tenants/{id}/health": {
              "parameters": [{"$ref": "#/components/parameters/id"}],
              "get": {
                "tags": ["tenants"],
                "operationId": "tenantHealth",
                "summary": "How a tenant is",
                "description": "Open to all where no operators' secret is set.",
                "security": [{"operator": []}],
                "responses": {
                  "200": {
                    "description": "Healthy or not: the body tells.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Health"}}}
                  },
                  "403": {"$ref": "#/components/responses/Forbidden"},
                  "404": {"$ref": "#/components/responses/NotFound"},
                  "406": {"$ref": "#/components/responses/NotAcceptable"}
                }
              },
              "head": {
                "tags": ["tenants"],
                "operationId": "tenantHealthHead",
                "summary": "Whether a tenant is there",
                "security": [{"operator": []}],
                "responses": {
                  "200": {"description": "It is."},
                  "403": {"description": "Not an operator's token."},
                  "404": {"description": "There is none."},
                  "406": {"description": "The answer would be JSON."}
                }
              }
            },
            "/api/openapi": {
              "get": {
                "tags": ["operating"],
                "operationId": "openapi",
                "summary": "This document",
                "responses": {
                  "200": {
                    "description": "This document.",
                    "content": {"application/json": {"schema": {"type": "object"}}}
                  }
                }
              }
            },
            "/healthcheck": {
              "get": {
                "tags": ["operating"],
                "operationId": "healthcheck",
                "summary": "Whether the hub lives",
                "responses": {
                  "200": {
                    "description": "It does.",
                    "content": {"text/plain": {"schema": {"type": "string", "enum": ["ok"]}}}
                  }
                }
              }
            },
            "/ready": {
              "get": {
                "tags": ["operating"],
                "operationId": "ready",
                "summary": "Whether changes stream and clients are served",
                "responses": {
                  "200": {
                    "description": "They are.",
                    "content": {"application/json": {"schema": {"type": "object"}}}
                  },
                  "503": {
                    "description": "They are not; the body says why.",
                    "content": {"application/json": {"schema": {"type": "object"}}}
                  }
                }
              }
            },
            "/metrics": {
              "get": {
                "tags": ["operating"],
                "operationId": "metrics",
                "summary": "Metrics, for Prometheus",
                "description": "Open to all where metrics_jwt_secret is not set.",
                "security": [{"metrics": []}, {}],
                "responses": {
                  "200": {
                    "description": "The text format of Prometheus.",
                    "content": {"text/plain": {"schema": {"type": "string"}}}
                  },
                  "403": {"description": "No token for metrics."}
                }
              }
            }
          },
          "components": {
            "securitySchemes": {
              "bearer": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "A token of the tenant's users."
              },
              "apikey": {
                "type": "apiKey",
                "in": "header",
                "name": "apikey",
                "description": "The same in another header."
              },
              "operator": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "A token signed by operator_jwt_secret."
              },
              "metrics": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "A token signed by metrics_jwt_secret."
              }
            },
            "parameters": {
              "id": {
                "name": "id",
                "in": "path",
                "required": true,
                "description": "The tenant's external_id.",
                "schema": {"type": "string", "maxLength": 255}
              }
            },
            "requestBodies": {
              "Tenant": {
                "required": true,
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "required": ["tenant"],
                      "properties": {"tenant": {"$ref": "#/components/schemas/TenantDescription"}}
                    }
                  }
                }
              }
            },
            "responses": {
              "Tenant": {
                "description": "The tenant.",
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "properties": {"data": {"$ref": "#/components/schemas/Tenant"}}
                    }
                  }
                }
              },
              "Stored": {
                "description": "The tenant as it is now.",
                "headers": {
                  "location": {"description": "Its address by its own id.", "schema": {"type": "string"}}
                },
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "properties": {"data": {"$ref": "#/components/schemas/Tenant"}}
                    }
                  }
                }
              },
              "Unauthorized": {
                "description": "No good token, or no such tenant.",
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "required": ["message"],
                      "properties": {
                        "message": {"type": "string", "enum": ["Unauthorized", "Tenant not found in database"]}
                      }
                    }
                  }
                }
              },
              "Suspended": {
                "description": "The tenant is suspended.",
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "required": ["message"],
                      "properties": {"message": {"type": "string", "enum": ["Tenant is suspended"]}}
                    }
                  }
                }
              },
              "Forbidden": {"description": "Not an operator's token."},
              "NotFound": {
                "description": "There is none.",
                "content": {
                  "application/json": {
                    "schema": {
                      "type": "object",
                      "required": ["message"],
                      "properties": {"message": {"type": "string", "enum": ["not found"]}}
                    }
                  }
                }
              },
              "NotAcceptable": {"description": "The answer would be JSON."},
              "Invalid": {
                "description": "What is wrong, by field.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}}
              },
              "TooMany": {
                "description": "The tenant sends more than it may.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
              }
            },
            "schemas": {
              "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
              "Refusal": {
                "type": "object",
                "required": ["message"],
                "properties": {"message": {"type": "string"}}
              },
              "Errors": {
                "type": "object",
                "required": ["errors"],
                "properties": {"errors": {"type": "object", "additionalProperties": true}}
              },
              "Message": {
                "type": "object",
                "required": ["topic", "event", "payload"],
                "properties": {
                  "topic": {"type": "string", "description": "Without its prefix."},
                  "event": {"type": "string"},
                  "payload": {"type": "object"},
                  "private": {"type": "boolean", "default": false},
                  "id": {"type": "string", "format": "uuid", "description": "Told to receivers."}
                }
              },
              "Health": {
                "type": "object",
                "properties": {
                  "data": {
                    "type": "object",
                    "properties": {
                      "healthy": {"type": "boolean"},
                      "db_connected": {"type": "boolean"},
                      "replication_connected": {"type": "boolean"},
                      "connected_cluster": {"type": "integer", "minimum": 0},
                      "region": {"type": "string"},
                      "node": {"type": "string"}
                    }
                  }
                }
              },
              "TenantDescription": {
                "type": "object",
                "properties": {
                  "external_id": {
                    "type": "string",
                    "maxLength": 255,
                    "description": "The first part of the Host header. The path counts more."
                  },
                  "name": {
                    "type": "string",
                    "maxLength": 255,
                    "description": "A new tenant is named by its external_id."
                  },
                  "jwt_secret": {
                    "type": "string",
                    "description": "The secret of clients' tokens. Either this or jwt_jwks is needed."
                  },
                  "jwt_jwks": {"type": "object", "description": "A JSON Web Key Set for clients' tokens."},
                  "postgres_cdc_default": {"type": "string", "default": "postgres_cdc_rls"},
                  "max_concurrent_users": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Sockets with a joined channel; 0 is without limit."
                  },
                  "max_events_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Messages sent and received, on average; 0 is without limit."
                  },
                  "max_presence_events_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Presence messages, on average; 0 is without limit."
                  },
                  "max_payload_size_in_kb": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Of a broadcast or presence, in units of 1000 bytes."
                  },
                  "max_bytes_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Stored, without effect."
                  },
                  "max_channels_per_client": {"type": "integer", "minimum": 0},
                  "max_joins_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "On average; 0 is without limit."
                  },
                  "suspend": {"type": "boolean", "description": "Nobody is let in."},
                  "private_only": {
                    "type": "boolean",
                    "description": "Channels that are not private are refused."
                  },
                  "presence_enabled": {
                    "type": "boolean",
                    "description": "Every channel is told who is present."
                  },
                  "max_client_presence_events_per_window": {
                    "type": "integer",
                    "minimum": 0,
                    "nullable": true,
                    "description": "Of one channel; 0 is without limit."
                  },
                  "client_presence_window_ms": {"type": "integer", "minimum": 0, "nullable": true},
                  "migrations_ran": {"type": "integer", "minimum": 0},
                  "broadcast_adapter": {
                    "type": "string",
                    "enum": ["phoenix", "gen_rpc"],
                    "description": "Stored, without effect."
                  },
                  "feature_flags": {"type": "object", "description": "Stored, without effect."},
                  "extensions": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": {"$ref": "#/components/schemas/ExtensionDescription"}
                  }
                }
              },
              "ExtensionDescription": {
                "type": "object",
                "required": ["type", "settings"],
                "properties": {
                  "type": {"type": "string", "enum": ["postgres_cdc_rls", "postgres"]},
                  "settings": {
                    "type": "object",
                    "description": "Either database_url, or region and all of db_host, db_port, db_name, db_user, db_password.",
                    "properties": {
                      "region": {"type": "string"},
                      "db_host": {"type": "string"},
                      "db_port": {"type": "string", "description": "A number, as a text."},
                      "db_name": {"type": "string"},
                      "db_user": {"type": "string"},
                      "db_password": {"type": "string"},
                      "database_url": {
                        "type": "string",
                        "description": "Instead of the above: how libpq is told to reach the database."
                      },
                      "poll_interval_ms": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 100,
                        "description": "Stored, without effect."
                      },
                      "poll_max_changes": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 100,
                        "description": "Stored, without effect."
                      },
                      "poll_max_record_bytes": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 1048576,
                        "description": "The largest change that is sent whole."
                      },
                      "publication": {"type": "string", "default": "supabase_realtime"},
                      "slot_name": {
                        "type": "string",
                        "default": "supabase_realtime_replication_slot",
                        "description": "The default leaves the name to the hub."
                      },
                      "ssl_enforced": {"type": "boolean", "default": true},
                      "db_pool": {"type": "integer", "minimum": 0},
                      "subcriber_pool_size": {"type": "integer", "minimum": 0},
                      "postgres_changes_pool": {"type": "integer", "minimum": 0},
                      "subs_pool_size": {"type": "integer", "minimum": 0},
                      "db_queue_target": {"type": "integer", "minimum": 0}
                    },
                    "additionalProperties": true
                  }
                }
              },
              "Tenant": {
                "type": "object",
                "properties": {
                  "id": {"type": "string", "format": "uuid"},
                  "external_id": {"type": "string"},
                  "name": {
                    "type": "string",
                    "maxLength": 255,
                    "description": "A new tenant is named by its external_id."
                  },
                  "max_concurrent_users": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Sockets with a joined channel; 0 is without limit."
                  },
                  "max_events_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Messages sent and received, on average; 0 is without limit."
                  },
                  "max_presence_events_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Presence messages, on average; 0 is without limit."
                  },
                  "max_payload_size_in_kb": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Of a broadcast or presence, in units of 1000 bytes."
                  },
                  "max_bytes_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Stored, without effect."
                  },
                  "max_channels_per_client": {"type": "integer", "minimum": 0},
                  "max_joins_per_second": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "On average; 0 is without limit."
                  },
                  "suspend": {"type": "boolean", "description": "Nobody is let in."},
                  "private_only": {
                    "type": "boolean",
                    "description": "Channels that are not private are refused."
                  },
                  "presence_enabled": {
                    "type": "boolean",
                    "description": "Every channel is told who is present."
                  },
                  "max_client_presence_events_per_window": {
                    "type": "integer",
                    "minimum": 0,
                    "nullable": true,
                    "description": "Of one channel; 0 is without limit."
                  },
                  "client_presence_window_ms": {"type": "integer", "minimum": 0, "nullable": true},
                  "migrations_ran": {"type": "integer", "minimum": 0},
                  "broadcast_adapter": {
                    "type": "string",
                    "enum": ["phoenix", "gen_rpc"],
                    "description": "Stored, without effect."
                  },
                  "feature_flags": {"type": "object", "description": "Stored, without effect."},
                  "inserted_at": {"type": "string", "description": "UTC.", "example": "2026-03-01T10:00:00"},
                  "extensions": {"type": "array", "items": {"$ref": "#/components/schemas/Extension"}}
                }
              },
              "Extension": {
                "type": "object",
                "properties": {
                  "type": {"type": "string"},
                  "inserted_at": {"type": "string"},
                  "updated_at": {"type": "string"},
                  "settings": {
                    "type": "object",
                    "description": "As described, without db_password; db_host, db_port, db_name, db_user and database_url are encrypted.",
                    "additionalProperties": true
                  }
                }
              }
            }
          }
        }
        """#
}
