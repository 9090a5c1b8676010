"""Programs that use libraries as their users do, eagerly and compiled."""
